"""The reference server's gRPC side and our client, each against grpcio, and against each other."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import h2.connection
import h2.events
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from adapters.mii_wire import (
    STREAM_PATH,
    Reply,
    read_reply,
    read_request,
    reply_message,
    request_message,
    token_reply,
)
from adapters.protobuf import BadMessageError
from harness.calibrate.server.grpc import GrpcFront
from harness.calibrate.server.log import OutcomeCode, StreamLog
from harness.calibrate.server.reference import StreamServer
from harness.grpc.call import MessageCutter, pack_message
from harness.grpc.decode import GrpcBody, HeaderTables
from harness.load.journal import Kind
from harness.load.wire import stamps
from harness.testing.grpc_sender import GrpcSender
from harness.types import Chunk, ChunkKind, ErrorClass, ResponseHead

INT64, STRING, FLOAT, BOOL, MESSAGE = 3, 9, 2, 8, 11  # FieldDescriptorProto.Type


@contextmanager
def reference(*, tokens_per_s: float = 500.0) -> Iterator[tuple[int, StreamLog]]:
    """A reference server in a thread: its port and its log."""
    log = StreamLog()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = StreamServer(
            listener, log, ttft_s=0.02, tokens_per_s=tokens_per_s, front=GrpcFront
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield listener.getsockname()[1], log
        finally:
            server.stop()
            thread.join(timeout=10.0)


def real_channel(port: int) -> Any:
    """A channel of grpcio that tries nothing twice."""
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_retries", 0)])


@pytest.fixture(autouse=True)
def _stamped() -> Iterator[None]:
    with socket.socket() as primer:
        stamps.enable(primer)
        yield


class ReplyDecoder:
    def feed(self, data: bytes) -> list[Chunk]:
        reply = read_reply(data)
        end = None if reply.finish_reason == "none" else reply.finish_reason
        kind = ChunkKind.TEXT if reply.text else ChunkKind.END
        return [
            Chunk(
                kind=kind,
                text=reply.text,
                total_tokens=reply.generated_tokens,
                prompt_tokens=reply.prompt_tokens,
                finish_reason=end,
            )
        ]

    def end(self) -> list[Chunk]:
        return []


class ReplyAdapter:
    def decoder(self, head: ResponseHead) -> ReplyDecoder:
        return ReplyDecoder()


def decoded(sender: GrpcSender, index: int, tables: HeaderTables) -> GrpcBody:
    (channel,) = sender.of(Kind.CHANNEL, index)
    adapter: Any = ReplyAdapter()
    body = GrpcBody(adapter, None, tables.of(int(channel.extra)))
    for entry in sender.reads(index):
        body.feed(entry.t_s, entry.payload)
    return body


def words(count: int) -> str:
    return "".join(f" {k}" for k in range(count))


def test_a_real_client_reads_the_reference_servers_streams_beside_each_other() -> None:
    with reference() as (port, log):
        with real_channel(port) as channel:
            stream = channel.unary_stream(STREAM_PATH)
            calls = [
                stream(
                    request_message("one two three", max_new_tokens=n),
                    timeout=20.0,
                    metadata=(("x-request-id", str(100 + n)),),
                )
                for n in (5, 1, 9)
            ]
            answers = [[read_reply(message) for message in call] for call in calls]
            assert [call.code() for call in calls] == [grpc.StatusCode.OK] * 3
        for n, replies in zip((5, 1, 9), answers, strict=True):
            assert "".join(r.text for r in replies) == words(n)
            assert [r.finish_reason for r in replies] == ["none"] * n + ["length"]
            assert [r.generated_tokens for r in replies] == [*range(1, n + 1), n]
            assert {r.prompt_tokens for r in replies} == {3}
    assert sorted(log.columns["index"]) == [101, 105, 109]
    assert set(log.columns["outcome"]) == {OutcomeCode.COMPLETE}
    assert set(log.columns["is_kernel"]) == {1}
    assert sum(log.columns["blocked"]) == 0
    assert len(log.columns["event_due_s"]) == 6 + 2 + 10


def test_a_real_client_is_told_what_it_did_wrong_and_may_hang_up() -> None:
    with reference(tokens_per_s=20.0) as (port, log), real_channel(port) as channel:
        for path, message, code in (
            ("/modelresponse.ModelResponse/Nothing", b"", grpc.StatusCode.UNIMPLEMENTED),
            (STREAM_PATH, b"\xff", grpc.StatusCode.INVALID_ARGUMENT),
            (
                STREAM_PATH,
                request_message("", max_new_tokens=0),
                grpc.StatusCode.INVALID_ARGUMENT,
            ),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                list(channel.unary_stream(path)(message, timeout=20.0))
            assert raised.value.code() is code
        call = channel.unary_stream(STREAM_PATH)(request_message("a", max_new_tokens=900))
        assert read_reply(next(call)).text == " 0"
        call.cancel()
        small = request_message("a", max_new_tokens=2)
        assert len(list(channel.unary_stream(STREAM_PATH)(small, timeout=20.0))) == 3
    assert sorted(log.columns["outcome"]) == [OutcomeCode.COMPLETE, OutcomeCode.DISCONNECTED]


def test_a_client_that_keeps_its_windows_shut_holds_its_stream_up_and_loses_nothing() -> None:
    tokens = 4000  # more than the first windows of 64 KiB
    client = h2.connection.H2Connection()
    client.initiate_connection()
    fields = {":method": "POST", ":scheme": "http", ":path": STREAM_PATH, ":authority": "h"}
    client.send_headers(1, list(fields.items()))
    client.send_data(1, pack_message(request_message("a", max_new_tokens=tokens)), end_stream=True)
    unread, data, is_ended = 0, b"", False
    with reference(tokens_per_s=100_000.0) as (port, log):
        sock = socket.create_connection(("127.0.0.1", port), timeout=20.0)
        with sock:
            while not is_ended:
                sock.sendall(client.data_to_send())
                for event in client.receive_data(sock.recv(65536)):
                    if isinstance(event, h2.events.DataReceived):
                        data += event.data or b""
                        unread += event.flow_controlled_length or 0
                    is_ended |= isinstance(event, h2.events.StreamEnded)
                if unread > 65_000 and not is_ended:
                    threading.Event().wait(0.1)
                    client.acknowledge_received_data(unread, 1)
                    unread = 0
    texts = [read_reply(message).text for message in MessageCutter().feed(data)]
    assert "".join(texts) == words(tokens)
    assert log.columns["blocked"][0] > 0


def test_our_client_reads_the_reference_server_as_it_logged(tmp_path: Path) -> None:
    with reference() as (port, log):
        sender = GrpcSender(port, tmp_path)
        tables = HeaderTables()
        for index, tokens in enumerate((20, 3)):
            message = request_message("one two", max_new_tokens=tokens)
            assert sender.send(STREAM_PATH, message).reason == "complete"
            body = decoded(sender, index, tables)
            assert body.head is not None
            assert body.head.headers["grpc-status"] == "0"
            assert body.answer is not None
            assert body.answer.error is None
            assert body.answer.text == words(tokens)
            assert body.answer.usage_tokens == tokens
            assert body.answer.finish_reason == "length"
            assert len(body.answer.chunk_s) == tokens
        sent = log.columns["event_sent_s"][:20]
        stamped = decoded(sender, 0, HeaderTables()).answer
        assert stamped is not None
        assert all(t_s >= s - 1e-3 for t_s, s in zip(stamped.chunk_s, sent, strict=True))
        sender.close()
    assert list(log.columns["index"]) == [0, 1]
    assert list(log.columns["tokens"]) == [20, 3]


class MiiHandler(grpc.GenericRpcHandler):
    """A server of grpcio that answers as MII does."""

    def service(self, details: Any) -> Any:
        if details.method != STREAM_PATH:
            return None
        return grpc.unary_stream_rpc_method_handler(self._stream)

    def _stream(self, message: bytes, context: Any) -> Iterator[bytes]:
        ask = read_request(message)
        if ask.tokens == 7:
            yield token_reply(0, ask.prompt_tokens)
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full")
        for k in range(ask.tokens):
            yield token_reply(k, ask.prompt_tokens)
        yield reply_message(
            Reply(text="", finish_reason="length", prompt_tokens=1, generated_tokens=ask.tokens)
        )


@pytest.fixture(scope="module")
def real_port() -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(4), handlers=(MiiHandler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


def test_our_client_reads_a_real_server_over_one_connection(real_port: int, tmp_path: Path) -> None:
    sender, tables = GrpcSender(real_port, tmp_path), HeaderTables()
    for index, tokens in enumerate((1, 200, 5)):
        prompt = "word " * (50_000 if index == 1 else 2)  # over the first window of 64 KiB
        message = request_message(prompt, max_new_tokens=tokens)
        assert sender.send(STREAM_PATH, message).reason == "complete"
        body = decoded(sender, index, tables)
        alone = decoded(sender, index, HeaderTables())  # no dynamic table: reads alone too
        for each in (body, alone):
            assert each.head is not None
            assert (each.head.status, each.head.headers["grpc-status"]) == (200, "0")
            assert each.answer is not None
            assert each.answer.error is None
            assert each.answer.text == words(tokens)
            assert each.answer.finish_reason == "length"
    assert [len(sender.of(Kind.CONNECTED, i)) for i in range(3)] == [1, 0, 0]
    sender.close()


def test_our_client_hears_a_real_servers_errors(real_port: int, tmp_path: Path) -> None:
    sender = GrpcSender(real_port, tmp_path)
    message = request_message("a", max_new_tokens=7)
    assert sender.send(STREAM_PATH, message).reason == "complete"
    assert sender.send("/modelresponse.ModelResponse/Nothing").status == 500
    errors = []
    for index in range(2):
        answer = decoded(sender, index, HeaderTables()).answer
        assert answer is not None
        errors.append((answer.error, (answer.error_message or "")[:50], answer.text))
    assert errors == [
        (ErrorClass.RATE_LIMITED, "grpc-status 8 (RESOURCE_EXHAUSTED): queue full", " 0"),
        (ErrorClass.STREAM_ERROR, "grpc-status 12 (UNIMPLEMENTED): Method not found!", ""),
    ]
    sender.close()


def mii_classes() -> tuple[Any, Any]:
    """MII's messages in protobuf's own run time."""
    file = descriptor_pb2.FileDescriptorProto(name="mii.proto", package="m", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> Any:
        made = file.message_type.add(name=name)
        for field, number, kind, label, of in fields:
            made.field.add(name=field, number=number, type=kind, label=label)
            if of:
                made.field[-1].type_name = of
        return made

    value = message("Value", ("ivalue", 2, INT64, 1, ""), ("bvalue", 4, BOOL, 1, ""))
    value.oneof_decl.add(name="oneof_values")
    for field in value.field:
        field.oneof_index = 0
    request = message(
        "Request",
        ("request", 1, STRING, 3, ""),
        ("kwargs", 2, MESSAGE, 3, ".m.Request.KwargsEntry"),
    )
    entry = request.nested_type.add(name="KwargsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=STRING, label=1)
    entry.field.add(name="value", number=2, type=MESSAGE, label=1, type_name=".m.Value")
    names = ("response", "finish_reason", "prompt_tokens", "generated_tokens", "time", "model_time")
    kinds = (STRING, STRING, INT64, INT64, FLOAT, FLOAT)
    fields = zip(names, range(1, 7), kinds, strict=True)
    message("Single", *[(name, number, kind, 1, "") for name, number, kind in fields])
    message("Multi", ("response", 1, MESSAGE, 3, ".m.Single"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"m.{name}") for name in ("Request", "Multi"))
    request_class, multi_class = map(message_factory.GetMessageClass, found)
    return request_class, multi_class


def test_our_messages_are_protobufs_own() -> None:
    request_class, multi_class = mii_classes()
    request = request_class.FromString(request_message("naïve café", max_new_tokens=300))
    assert list(request.request) == ["naïve café"]
    assert request.kwargs["stream"].bvalue is True
    assert request.kwargs["do_sample"].bvalue is False
    assert request.kwargs["max_new_tokens"].ivalue == 300
    ask = read_request(request.SerializeToString())
    assert (ask.tokens, ask.prompt_tokens) == (300, 2)
    reply = Reply(text=" é", finish_reason="none", prompt_tokens=300, generated_tokens=2)
    (single,) = multi_class.FromString(reply_message(reply)).response
    assert (single.response, single.finish_reason) == (" é", "none")
    assert (single.prompt_tokens, single.generated_tokens) == (300, 2)
    assert (single.time, single.model_time) == (-1.0, -1.0)
    assert read_reply(multi_class(response=[single]).SerializeToString()) == reply


@pytest.mark.parametrize("message", [b"", b"\x0a\x05ab", b"\x0f", b"\x80", b"\xff" * 11])
def test_what_is_no_request_is_refused(message: bytes) -> None:
    with pytest.raises(BadMessageError):
        read_request(message)
