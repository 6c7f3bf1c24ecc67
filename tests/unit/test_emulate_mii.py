"""The emulated DeepSpeed-MII, read by grpcio and by our own client, through its adapter."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest

from adapters.deepspeed_mii import DeepSpeedMiiAdapter
from adapters.mii_wire import STREAM_PATH, Reply, read_reply, request_message
from adapters.protobuf import field, float_field
from harness.answer import Answer
from harness.config import EmulateConf, EngineConf, ModelConf, Route
from harness.emulate.engines import WIRES, played
from harness.emulate.wires.mii.wire import WHOLE_PATH, MiiWire
from harness.emulate.wires.openai.answer import word
from harness.emulate.wires.wire import Ask, GrpcRefusal
from harness.engine.grpc_probe import grpc_call
from harness.engine.ports import free_port
from harness.engine.probe import Endpoint, NoAnswer, call
from harness.engine.ready import wait_ready
from harness.grpc.decode import GrpcBody, HeaderTables
from harness.load.journal import Kind
from harness.load.wire import stamps
from harness.testing.emulated import Emulated, emulated
from harness.testing.grpc_sender import GrpcSender
from harness.types import ErrorClass, HttpCall, Request, TokensSource

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server needs epoll")

PATIENT_S = 20.0
QUICK = ("--step-ms", "1", "--prefill-tokens-per-s", "1e6")
ADAPTER = DeepSpeedMiiAdapter(EngineConf(name="deepspeed_mii"), ModelConf(name="m"))
CHAT = DeepSpeedMiiAdapter(EngineConf(name="deepspeed_mii", route=Route.CHAT), ModelConf(name="m"))


def words(count: int) -> str:
    return "".join(map(word, range(count)))


def port_of(server: Emulated) -> int:
    port = urlsplit(server.base_url).port
    assert port is not None
    return port


@contextmanager
def channel_to(server: Emulated) -> Iterator[Any]:
    """A channel of grpcio that tries nothing twice."""
    options = [("grpc.enable_retries", 0)]
    with grpc.insecure_channel(f"127.0.0.1:{port_of(server)}", options=options) as channel:
        yield channel


def replies(channel: Any, message: bytes, path: str = STREAM_PATH) -> list[Reply]:
    call = channel.unary_stream(path)(message, timeout=PATIENT_S)
    return [read_reply(reply) for reply in call]


def status(channel: Any, message: bytes, path: str = STREAM_PATH) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        replies(channel, message, path)
    return raised.value.code(), raised.value.details()


def query(prompt: str, **kwargs: bytes) -> bytes:
    entries = (field(1, name.encode()) + field(2, value) for name, value in kwargs.items())
    return field(1, prompt.encode()) + b"".join(field(2, entry) for entry in entries)


def test_a_real_client_reads_a_message_for_each_token_and_one_more() -> None:
    with emulated(*QUICK, engine="deepspeed_mii") as server, channel_to(server) as channel:
        assert (server.knobs["slots"], server.knobs["tokens_per_step"]) == (512, 768)
        for tokens in (1, 5):
            got = replies(channel, request_message("x" * 40, max_new_tokens=tokens))
            assert len(got) == tokens + 1
            assert [r.text for r in got] == [*map(word, range(tokens)), ""]
            assert [r.finish_reason for r in got] == ["none"] * tokens + ["length"]
            assert [r.generated_tokens for r in got] == [*range(1, tokens + 1), tokens]
            assert {r.prompt_tokens for r in got} == {10}


def test_streams_of_one_connection_run_beside_each_other() -> None:
    with emulated("--step-ms", "20", engine="deepspeed_mii") as server:
        with channel_to(server) as channel:
            long = channel.unary_stream(STREAM_PATH)(request_message("x", max_new_tokens=150))
            first = read_reply(next(long)).text
            for tokens in (3, 9):
                got = replies(channel, request_message("x", max_new_tokens=tokens))
                assert "".join(r.text for r in got) == words(tokens)
            assert first + "".join(read_reply(m).text for m in long) == words(150)
        summary = server.stop()
    assert summary["steps"] < 150 + 3 + 9  # they shared steps
    assert summary["requests"] == {"length": 3}


def test_our_client_reads_it_through_the_adapter(tmp_path: Path) -> None:
    with socket.socket() as primer, emulated(*QUICK, engine="deepspeed_mii") as server:
        stamps.enable(primer)
        sender, tables = GrpcSender(port_of(server), tmp_path, timeout_s=PATIENT_S), HeaderTables()
        for index, tokens in enumerate((1, 40)):
            request = Request(
                index=index, prompt="x" * 80, input_tokens=20, max_output_tokens=tokens
            )
            encoded = ADAPTER.encode(request)
            assert sender.send(encoded.path, encoded.body).reason == "complete"
            (channel,) = sender.of(Kind.CHANNEL, 0)
            body = GrpcBody(ADAPTER, None, tables.of(int(channel.extra)))
            for entry in sender.reads(index):
                body.feed(entry.t_s, entry.payload)
            answer = body.answer
            assert answer is not None
            assert (answer.error, answer.text, answer.finish_reason) == (
                *(None, words(tokens)),
                "length",
            )
            assert (answer.output_tokens, answer.prompt_tokens) == (tokens, 20)
            assert answer.tokens_source is TokensSource.USAGE
            assert len(answer.chunk_s) == tokens
        sender.close()


@pytest.mark.parametrize("adapter", [ADAPTER, CHAT], ids=["grpc", "chat"])
def test_it_is_ready_for_both_routes_and_known_as_an_emulator(
    adapter: DeepSpeedMiiAdapter,
) -> None:
    with emulated(*QUICK, "--served-names", "m", engine="deepspeed_mii") as server:
        ready = wait_ready(None, adapter, Endpoint(server.base_url), timeout_s=PATIENT_S)
    assert (ready.identity.model, ready.identity.is_emulated) == ("m", True)


def test_a_chat_stream_has_a_role_no_usage_and_an_end_of_its_own() -> None:
    request = Request(index=0, prompt="hi", input_tokens=1, max_output_tokens=4)
    knobs = (*QUICK, "--natural-output-tokens", "100000", "--served-names", "m")
    with emulated(*knobs, engine="deepspeed_mii") as server:
        got = call(Endpoint(server.base_url), CHAT.encode(request), PATIENT_S)
    assert not isinstance(got, NoAnswer)
    events = [json.loads(e.removeprefix(b"data: ")) for e in got.body.split(b"\n\n")[:-2]]
    assert got.body.endswith(b"\n\ndata: [DONE]\n\n")
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas == [
        {"role": "assistant"},
        *({"content": word(k)} for k in range(4)),
        {"content": ""},
    ]
    assert [e["choices"][0]["finish_reason"] for e in events] == [None] * 5 + ["length"]
    assert set(events[0]) == {"id", "model", "choices"}
    answer = Answer(CHAT.decoder(got.head))
    answer.feed(0.0, got.body)
    answer.end(0.0)
    assert (answer.error, answer.text, len(answer.chunk_s)) == (None, words(4), 4)
    assert (answer.usage_tokens, answer.prompt_tokens) == (None, None)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (query("p", colour=field(2, 1)), "colour: Extra inputs are not permitted"),
        (query("p", temperature=float_field(3, 0.0)), "temperature=0.0: must be > 0"),
        (query("p", max_new_tokens=field(2, 0)), "max_new_tokens=0: must be an integer > 0"),
        (query("x" * 40_000), "max_length (8192) must be greater than prompt_length (10000)"),
        (b"", "list index out of range"),
        (b"\xff", "a protobuf number that is cut or too long"),
    ],
)
def test_what_the_replica_refuses_is_a_status(message: bytes, said: str) -> None:
    refusal = MiiWire(EmulateConf(), ()).call(STREAM_PATH, message, 1, 1)
    assert refusal == GrpcRefusal(status=2, message=f"Exception iterating responses: {said}")


def test_a_real_client_hears_a_status_and_may_go_on() -> None:
    with emulated(*QUICK, engine="deepspeed_mii") as server, channel_to(server) as channel:
        code, details = status(channel, query("p\n", **{"Größe\n": field(2, 1)}))
        assert code is grpc.StatusCode.UNKNOWN
        assert details.startswith("Exception iterating responses: Größe\n: Extra")
        code, _ = status(channel, b"", "/modelresponse.ModelResponse/Nothing")
        assert code is grpc.StatusCode.UNIMPLEMENTED
        assert len(replies(channel, request_message("p", max_new_tokens=2))) == 3


def test_without_stream_it_answers_once_at_the_end() -> None:
    whole = query("x" * 8, max_new_tokens=field(2, 6), ignore_eos=field(4, 1))
    with emulated(*QUICK, engine="deepspeed_mii") as server, channel_to(server) as channel:
        for path in (STREAM_PATH, WHOLE_PATH):
            (reply,) = replies(channel, whole, path)
            assert (reply.text, reply.finish_reason) == (words(6), "length")
            assert (reply.prompt_tokens, reply.generated_tokens) == (2, 6)


def asked(wire: MiiWire, number: int = 1, **kwargs: bytes) -> Ask:
    ask = wire.call(STREAM_PATH, query("hello there", stream=field(4, 1), **kwargs), 1, number)
    assert isinstance(ask, Ask)
    return ask


def test_an_answer_ends_by_itself_unless_it_is_forced() -> None:
    wire = MiiWire(EmulateConf(natural_output_tokens=20), ())
    greedy, most = field(4, 0), field(2, 5000)
    free = asked(wire, do_sample=greedy, max_new_tokens=most)
    assert free.finish_reason == "stop"
    assert free.output_tokens < 5000
    again = asked(wire, 2, do_sample=greedy, max_new_tokens=most)
    assert again.output_tokens == free.output_tokens
    sampled = {asked(wire, n, max_new_tokens=most).output_tokens for n in range(20)}
    assert len(sampled) > 5  # no seed: another length each time
    forced = asked(wire, ignore_eos=field(4, 1), max_new_tokens=most)
    assert (forced.output_tokens, forced.finish_reason) == (5000, "length")
    assert asked(wire, ignore_eos=field(4, 1)).output_tokens == 8192 - 3  # what is left


def http(server: Emulated, body: dict[str, Any], path: str = "/v1/chat/completions") -> Any:
    request = HttpCall(path=path, body=json.dumps(body).encode())
    got = call(Endpoint(server.base_url), request, PATIENT_S)
    assert not isinstance(got, NoAnswer), got
    return got


def test_the_openai_server_refuses_in_its_own_form() -> None:
    good = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    with emulated(*QUICK, "--served-names", "m", engine="deepspeed_mii") as server:
        wrong = http(server, {**good, "model": "x"})
        assert wrong.head.status == 400
        assert json.loads(wrong.body) == {
            "object": "error",
            "message": 'Model "x" not found. Please use "m".',
            "code": 40301,
        }
        assert http(server, {"model": "m"}).head.status == 400
        cold = http(server, {**good, "temperature": 0})
        assert (cold.head.status, cold.body) == (500, b"Internal Server Error")
        begun = http(server, {**good, "temperature": 0, "stream": True})
        assert begun.head.status == 200
        assert begun.body.count(b"data: ") == 2  # the role and [DONE]
        whole = json.loads(http(server, {**good, "max_tokens": 1, "top_k": 1}).body)
        assert whole["choices"][0]["message"] == {"role": "assistant", "content": " tok0"}
        assert whole["usage"]["completion_tokens"] == 1
        prompt = {"model": "m", "prompt": "hi", "max_tokens": 1, "stream": True}
        text = http(server, prompt, "/v1/completions").body
        assert text.startswith(b'data: {"id":"cmpl-')
        assert b'"text":" tok0"' in text


def test_a_call_too_many_is_refused() -> None:
    many = request_message("p", max_new_tokens=8000)
    knobs = ("--max-in-flight", "1")
    with emulated(*knobs, engine="deepspeed_mii") as server, channel_to(server) as channel:
        first = channel.unary_stream(STREAM_PATH)(many)
        assert read_reply(next(first)).text == word(0)
        assert status(channel, many)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        first.cancel()


def test_a_call_that_the_engine_fails_on_has_a_status() -> None:
    knobs = (*QUICK, "--error-ratio", "1")
    with emulated(*knobs, engine="deepspeed_mii") as server, channel_to(server) as channel:
        code, _ = status(channel, request_message("p", max_new_tokens=8))
        assert code is grpc.StatusCode.UNKNOWN


def test_a_cut_answer_breaks_its_own_stream_off() -> None:
    with emulated(*QUICK, "--cut-ratio", "1", engine="deepspeed_mii") as server:
        with channel_to(server) as channel:
            cut = channel.unary_stream(STREAM_PATH)(request_message("p", max_new_tokens=8))
            got = []
            with pytest.raises(grpc.RpcError):
                got.extend(read_reply(message).text for message in cut)
            assert cut.code() is grpc.StatusCode.INTERNAL
        answer = grpc_call(
            Endpoint(server.base_url),
            ADAPTER.encode(Request(index=0, prompt="p", input_tokens=1, max_output_tokens=8)),
            PATIENT_S,
        )
        assert isinstance(answer, NoAnswer)
        assert "RST_STREAM" in answer.reason
        assert server.stop()["requests"] == {"abort": 2}


def test_the_engine_works_on_for_a_client_that_has_gone() -> None:
    knobs = ("--step-ms", "20", "--slots", "1")
    with emulated(*knobs, engine="deepspeed_mii") as server:
        with channel_to(server) as channel:
            call = channel.unary_stream(STREAM_PATH)(request_message("p", max_new_tokens=20))
            assert read_reply(next(call)).text == word(0)
            call.cancel()
        with channel_to(server) as channel:  # waits for the only slot
            got = replies(channel, request_message("p", max_new_tokens=1))
        assert len(got) == 2
        summary = server.stop()
    assert summary["requests"] == {"length": 2}
    assert summary["tokens"] == 21


def test_its_port_is_closed_while_it_loads() -> None:
    port = free_port()
    argv = [sys.executable, "-m", "harness.emulate", "deepspeed_mii", "--port", str(port)]
    health, endpoint = HttpCall(method="GET", path="/health"), Endpoint(f"http://127.0.0.1:{port}")
    with subprocess.Popen([*argv, "--loading-s", "1"], stdout=subprocess.DEVNULL) as process:
        try:
            end_s, heard = time.monotonic() + PATIENT_S, list[str]()
            while not heard or not heard[-1].startswith("200"):
                assert time.monotonic() < end_s, heard
                heard.append(str(call(endpoint, health, PATIENT_S)))
                time.sleep(0.02)
        finally:
            process.kill()
    assert set(heard[:-1]) == {"connection refused"}


def test_what_is_neither_http_nor_grpc_is_sent_away() -> None:
    with emulated(*QUICK, engine="deepspeed_mii") as server:
        for data, beginning in ((b"hello\r\n\r\n", b"HTTP/1.1 400"), (b"PRI nothing", b"")):
            with socket.create_connection(("127.0.0.1", port_of(server)), PATIENT_S) as sock:
                sock.sendall(data[:2])
                sock.sendall(data[2:])
                heard = sock.recv(65536)
                assert heard.startswith(beginning)
                assert beginning or heard[3:4] == b"\x07"  # GOAWAY
        with channel_to(server) as channel:
            assert len(replies(channel, request_message("p", max_new_tokens=1))) == 2


def test_of_slots_and_tokens_in_a_step_what_is_given_bounds_the_other() -> None:
    wire = WIRES["deepspeed_mii"]
    assert played(EmulateConf(), wire).slots == 512
    few = played(EmulateConf(tokens_per_step=100), wire)
    assert (few.slots, few.tokens_per_step) == (100, 100)
    many = played(EmulateConf(slots=1000), wire)
    assert (many.slots, many.tokens_per_step) == (1000, 1000)


def test_a_refused_call_is_a_failed_request(tmp_path: Path) -> None:
    with socket.socket() as primer, emulated(*QUICK, engine="deepspeed_mii") as server:
        stamps.enable(primer)
        sender = GrpcSender(port_of(server), tmp_path, timeout_s=PATIENT_S)
        sender.send(STREAM_PATH, request_message("x" * 40_000, max_new_tokens=1))
        body = GrpcBody(ADAPTER, None, None)
        for entry in sender.reads(0):
            body.feed(entry.t_s, entry.payload)
        assert body.answer is not None
        assert body.answer.error is ErrorClass.STREAM_ERROR
        assert "max_length (8192)" in (body.answer.error_message or "")
        sender.close()
