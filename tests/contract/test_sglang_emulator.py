"""The emulated SGLang through SGLang's adapter: what is sent, when gauges move, what it counts."""

import json
import math
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.sglang import SglangAdapter
from adapters.sglang_launch import DECODE_LOG_INTERVAL
from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf, EngineConf, ModelConf, Route
from harness.emulate.engines import WIRES, played
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.wires.sglang import wire as sglang
from harness.emulate.wires.sglang.wire import SglangWire
from harness.emulate.wires.wire import Ask
from harness.engine.probe import Answer, Endpoint, call
from harness.testing import AdapterSuite, read_http
from harness.testing.emulated import emulated
from harness.types import (
    Chunk,
    ChunkKind,
    EngineSample,
    ErrorClass,
    HttpCall,
    Provenance,
    Request,
    ResponseHead,
)

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MODEL = ModelConf(name="tiny")
ADAPTER = SglangAdapter(EngineConf(name="sglang"), MODEL)
ON_CHAT = SglangAdapter(EngineConf(name="sglang", route=Route.CHAT), MODEL)
QUICK = {"step_ms": 1e-3, "step_per_sequence_ms": 0.0, "prefill_tokens_per_s": 1e12}


class Emulated:
    """The wire and a player that is stepped by hand."""

    def __init__(self, *names: str, **knobs: Any) -> None:
        self.conf = played(EmulateConf(**{**QUICK, **knobs}), SglangWire)
        self.player = Player(self.conf, Pace(1.0))
        self.wire = SglangWire(self.conf, names or ("tiny",))
        self.number = 0

    def respond(self, call: HttpCall) -> bytes | Ask:
        self.number += 1
        request = HttpRequest(method=call.method, path=call.path, body=call.body)
        return self.wire.respond(request, self.number, self.player)

    def told(self, call: HttpCall) -> tuple[ResponseHead, bytes]:
        data = self.respond(call)
        assert isinstance(data, bytes)
        head, pieces = read_http(data)
        return head, b"".join(pieces)

    def ask(self, path: str = COMPLETIONS, **body: Any) -> Ask:
        where = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {}
        more = {"stream_options": {"include_usage": True}} if body.get("stream", True) else {}
        fields = {"model": "tiny", "prompt": "hello", "max_tokens": 3, "ignore_eos": True}
        call = post(path, {**fields, "stream": True, **more, **where, **body})
        asked = self.respond(call)
        assert isinstance(asked, Ask), asked
        return asked

    def take(self, asked: Ask) -> bytearray:
        """Let the engine work on it; gives where its bytes will be."""
        sent = bytearray()
        connection = SimpleNamespace(stamp_s=0.0, put=sent.extend, is_busy=False, stream=None)
        self.player.take(connection, asked, cut_at=None)  # type: ignore[arg-type]
        return sent

    def step(self, steps: int = 1) -> None:
        """Play so many steps to their end."""
        for _ in range(steps):
            while (due_s := self.player.advance()) != 0.0:
                assert due_s != math.inf, "nothing to do"

    def play(self) -> None:
        """Play until nothing is left to do."""
        while self.player.advance() != math.inf:
            pass

    def sample(self) -> EngineSample:
        return ADAPTER.engine_sample({"metrics": self.told(ADAPTER.probes["metrics"])[1]})


def post(path: str, body: Any) -> HttpCall:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpCall(path=path, body=data)


def written(asked: Ask, cached_tokens: int = 0) -> bytes:
    """All bytes of an answer."""
    last = asked.output_tokens - 1
    pieces = [asked.answer.token(k) for k in range(last)]
    return b"".join((*pieces, asked.answer.last(last, cached_tokens)))


def body_of(data: bytes) -> bytes:
    return b"".join(read_http(data)[1])


def chunks_of(data: bytes, adapter: SglangAdapter = ADAPTER) -> list[Chunk]:
    head, pieces = read_http(data)
    decoder = adapter.decoder(head)
    return [chunk for piece in pieces for chunk in decoder.feed(piece)] + decoder.end()


def events_of(data: bytes) -> list[str]:
    events = body_of(data).decode().split("\n\n")
    assert events.pop() == ""
    assert events.pop() == "data: [DONE]"
    return [event.removeprefix("data: ") for event in events]


def answered(path: str, cached_tokens: int = 0, **body: Any) -> bytes:
    engine = Emulated()
    engine.wire._created = 1
    asked = engine.ask(path, **body)
    return written(asked, cached_tokens)


class TestEmulatedCompletions(AdapterSuite):
    adapter = ADAPTER
    body = body_of(answered(COMPLETIONS))
    output_tokens, prompt_tokens, token_chunks = 3, 2, 3
    text, finish_reason = " tok0 tok1 tok2", "length"


class TestEmulatedChat(AdapterSuite):
    adapter = ON_CHAT
    body = body_of(answered(CHAT))
    output_tokens, prompt_tokens, token_chunks = 3, 3, 3
    text, finish_reason = " tok0 tok1 tok2", "length"


ID = '"id":"00000000000000000000000000000001"'
NAMED = f'{{{ID},"object":"text_completion","created":1,"model":"tiny","choices":['
CHAT_NAMED = f'{{{ID},"object":"chat.completion.chunk","created":1,"model":"tiny","choices":['


def test_a_completions_stream_is_sglangs_byte_for_byte() -> None:
    """After CompletionStreamResponse of SGLang 0.5.23, srt/entrypoints/openai/protocol.py."""
    end = '"logprobs":null,"finish_reason":%s,"matched_stop":null}],"usage":null}'
    assert events_of(answered(COMPLETIONS, 1, max_tokens=2)) == [
        NAMED + '{"index":0,"text":" tok0",' + end % "null",
        NAMED + '{"index":0,"text":" tok1",' + end % '"length"',
        NAMED + '],"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2,'
        '"prompt_tokens_details":{"cached_tokens":1},"reasoning_tokens":0}}',
    ]


def test_a_chat_stream_is_sglangs_byte_for_byte() -> None:
    """After StreamDelta and StreamChoice of SGLang 0.5.23, srt/entrypoints/openai/sse_utils.py."""
    end = '"logprobs":null,"finish_reason":%s,"matched_stop":null}]}'
    delta = CHAT_NAMED + '{"index":0,"delta":{"reasoning_content":null%s},'
    assert events_of(answered(CHAT, max_tokens=1)) == [
        delta % ',"role":"assistant","content":""' + end % "null",
        delta % ',"content":" tok0"' + end % "null",
        delta % "" + end % '"length"',
        CHAT_NAMED + '],"usage":{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1,'
        '"prompt_tokens_details":{"cached_tokens":0,"image_tokens":null,"audio_tokens":null,'
        '"video_tokens":null},"reasoning_tokens":0,"completion_tokens_details":null}}',
    ]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_nothing_is_sent_before_the_first_token(path: str) -> None:
    engine = Emulated()
    asked = engine.ask(path)
    assert (asked.answer.head, asked.answer.started) == (b"", b"")
    sent = engine.take(asked)
    assert not sent
    engine.step()
    assert sent.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream")
    assert sent.count(b" tok") == 1
    engine.play()
    assert [c.text for c in chunks_of(bytes(sent)) if c.text] == [" tok0", " tok1", " tok2"]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_whole_answer_comes_at_once(path: str) -> None:
    engine = Emulated()
    sent = engine.take(engine.ask(path, stream=False))
    engine.step(2)
    assert not sent
    engine.step()
    adapter = ON_CHAT if path == CHAT else ADAPTER
    [chunk] = [chunk for chunk in chunks_of(bytes(sent), adapter) if chunk.text]
    assert (chunk.text, chunk.total_tokens) == (" tok0 tok1 tok2", 3)


def test_what_the_adapter_sends_is_answered() -> None:
    for adapter in (ADAPTER, ON_CHAT):
        engine = Emulated()
        request = Request(index=0, prompt="hello", input_tokens=2, max_output_tokens=5)
        asked = engine.respond(adapter.encode(request))
        assert isinstance(asked, Ask)
        chunks = chunks_of(written(asked), adapter)
        assert [chunk.total_tokens for chunk in chunks if chunk.total_tokens] == [5]
        assert chunks[-1].kind is ChunkKind.END


def test_an_end_by_itself_names_the_token() -> None:
    data = answered(COMPLETIONS, ignore_eos=False, max_tokens=8000, temperature=0)
    last = json.loads(events_of(data)[-2])["choices"][0]
    assert (last["finish_reason"], last["matched_stop"]) == ("stop", 2)


def test_an_unknown_model_is_answered_under_its_name() -> None:
    engine = Emulated("tiny", "fr")
    events = events_of(written(engine.ask(model="other")))
    assert {json.loads(event)["model"] for event in events} == {"other"}
    lora = Request(index=0, prompt="hello", input_tokens=2, max_output_tokens=5, lora="fr")
    assert isinstance(engine.respond(ADAPTER.encode(lora)), Ask)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"{", "Bad Request", "JSON decode error"),
        ({"prompt": "a", "max_tokens": 0}, "Bad Request", "max_tokens"),
        ({"prompt": ""}, "BadRequestError", "not empty"),
        ({"prompt": "a" * 500}, "BadRequestError", "The input (125 tokens) is longer than"),
        (
            {"prompt": "a" * 40, "max_tokens": 95},
            "BadRequestError",
            (
                "Requested token count exceeds the model's maximum context length of 100 tokens. "
                "You requested a total of 105 tokens"
            ),
        ),
    ],
)
def test_a_bad_request_is_refused_with_a_flat_error(body: Any, kind: str, message: str) -> None:
    engine = Emulated(max_model_len_tokens=100)
    data = engine.respond(post(COMPLETIONS, body))
    assert isinstance(data, bytes)
    error = json.loads(body_of(data))
    assert (error["object"], error["type"], error["param"], error["code"]) == (
        *("error", kind, None),
        400,
    )
    assert message in error["message"]
    (chunk,) = chunks_of(data)
    assert (chunk.error, chunk.message) == (ErrorClass.HTTP_4XX, error["message"])


def test_a_full_queue_is_an_event_in_a_stream_and_else_a_status() -> None:
    engine = Emulated()
    engine.ask()
    (streamed,) = chunks_of(engine.wire.overloaded(9, 1))
    assert (streamed.error, streamed.message) == (
        ErrorClass.STREAM_ERROR,
        "The request queue is full.",
    )
    engine.ask(stream=False)
    (whole,) = chunks_of(engine.wire.overloaded(9, 1))
    assert (whole.error, whole.message) == (ErrorClass.HTTP_5XX, "The request queue is full.")
    (failed,) = chunks_of(engine.wire.failed())
    assert failed.error is ErrorClass.HTTP_5XX


def test_it_is_healthy_after_its_own_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(sglang, "time", SimpleNamespace(monotonic=lambda: now_s))
    engine = Emulated(step_ms=1000.0, speed=2.0)
    health, info = ADAPTER.probes["health"], HttpCall(method="GET", path="/model_info")
    assert [engine.told(one)[0].status for one in (health, info)] == [503, 200]
    now_s = 103.9
    assert engine.told(health)[0].status == 503
    now_s = 104.0  # 8 tokens, at twice the speed
    head, body = engine.told(health)
    assert (head.status, body) == (200, b"")


def test_what_it_says_of_itself() -> None:
    engine = Emulated("tiny", "fr", kv_blocks=100, block_tokens=16, slots=7)
    bodies = {name: engine.told(ADAPTER.probes[name])[1] for name in ADAPTER.identity_probes}
    identity = ADAPTER.identity(bodies)
    assert (identity.version, identity.model, identity.is_emulated) == ("0.5.23", "tiny", True)
    assert (identity.max_running, identity.kv_capacity_tokens) == (7, 1600)
    assert identity.max_model_len_tokens == 1600
    models = json.loads(bodies["models"])["data"]
    assert [(one["id"], one["parent"]) for one in models] == [("tiny", None), ("fr", "tiny")]
    tokens = json.loads(engine.told(ADAPTER.probes["tokenize"])[1])
    assert len(tokens["tokens"]) == tokens["count"] > 0
    assert engine.told(post("/tokenize", {"prompt": 3}))[0].status == 400
    assert engine.told(HttpCall(method="GET", path="/v2"))[0].status == 404
    assert engine.told(HttpCall(method="GET", path=COMPLETIONS))[0].status == 405


def test_its_gauges_move_as_seldom_as_those_of_a_server_that_we_start() -> None:
    assert sglang.DECODE_LOG_INTERVAL == DECODE_LOG_INTERVAL
    engine = Emulated()
    assert (engine.sample().running, engine.sample().kv_provenance) == (0, Provenance.MEASURED)
    engine.take(engine.ask(max_tokens=2 * DECODE_LOG_INTERVAL + 5))
    engine.step()  # the prompt: those that run do not include it yet
    first = engine.sample()
    assert (first.running, engine.player.gauges().running) == (0, 1)
    assert first.kv_usage_ratio == engine.player.gauges().kv_usage_ratio > 0
    engine.step(DECODE_LOG_INTERVAL - 1)
    assert engine.sample().running == 0
    engine.step()
    assert engine.sample().running == 1
    engine.take(engine.ask(prompt="a" * 400, max_tokens=100))
    usage = engine.sample().kv_usage_ratio
    assert engine.player.gauges().waiting == 1
    assert engine.sample().waiting == 0  # nobody has told of it
    engine.step()  # the second prompt beside a decode step
    second = engine.sample()
    assert second.running == 1
    assert second.kv_usage_ratio is not None
    assert usage is not None
    assert second.kv_usage_ratio > usage
    engine.play()
    idle = engine.sample()
    assert (idle.running, idle.waiting, idle.kv_usage_ratio) == (0, 0, 0)


def test_counters_of_tokens_move_when_a_request_ends() -> None:
    engine = Emulated()
    assert engine.sample().generation_tokens_total is None  # no version of it is known yet
    engine.take(engine.ask(max_tokens=5))
    engine.step(3)
    running = engine.sample()
    assert (running.prompt_tokens_total, running.generation_tokens_total) == (0, 0)
    scrape = engine.told(ADAPTER.probes["metrics"])[1].decode().splitlines()
    live = [line for line in scrape if "realtime" in line and 'mode="decode"' in line]
    assert [line.rpartition(" ")[2] for line in live] == ["2.0"]
    engine.play()
    ended = engine.sample()
    assert (ended.prompt_tokens_total, ended.generation_tokens_total) == (2, 5)
    assert (ended.preemptions_total, ended.prefix_cached_tokens_total) == (0, 0)


def test_the_cache_is_flushed_only_when_nothing_runs() -> None:
    engine = Emulated(block_tokens=1)
    reset = ADAPTER.probes["reset_cache"]

    def cached_tokens() -> int:
        sent = engine.take(engine.ask(prompt="x" * 400))
        engine.step()
        assert engine.told(reset)[0].status == 400
        engine.play()
        return next(c.cached_tokens for c in chunks_of(bytes(sent)) if c.cached_tokens is not None)

    assert [cached_tokens(), cached_tokens()] == [0, 99]
    assert engine.told(reset)[0].status == 200
    assert cached_tokens() == 0


def test_a_retraction_is_counted_and_does_not_show_in_the_stream() -> None:
    engine = Emulated(kv_blocks=40, block_tokens=1, max_model_len_tokens=40, prefix_cache=False)
    sent = [engine.take(engine.ask(max_tokens=30)) for _ in range(2)]
    engine.play()
    assert engine.sample().preemptions_total == engine.player.counters.preemptions > 0
    for data in sent:
        chunks = chunks_of(bytes(data))
        assert "".join(c.text for c in chunks) == "".join(f" tok{k}" for k in range(30))
        assert not [c for c in chunks if c.error]


@settings(deadline=None, max_examples=40)
@given(
    shared=st.integers(0, 60),
    rest=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    is_on=st.booleans(),
)
def test_a_prompt_takes_from_the_cache_exactly_what_it_shares(
    shared: int, rest: tuple[int, int], is_on: bool
) -> None:
    """A radix tree is exact to the token; the last token of a prompt is always computed."""
    engine = Emulated(block_tokens=1, prefix_cache=is_on)
    common = list(range(1000, 1000 + shared))
    counted = []
    for number, length in enumerate(rest):
        prompt = [*common, *range(2000 + 100 * number, 2000 + 100 * number + length)]
        sent = engine.take(engine.ask(prompt=prompt))
        engine.play()
        usage = [c for c in chunks_of(bytes(sent)) if c.kind is ChunkKind.USAGE]
        counted.append(usage[0].cached_tokens)
    assert counted == [0, shared if is_on else 0]
    sample = engine.sample()
    assert sample.prefix_cached_tokens_total == sum(counted)
    assert sample.prompt_tokens_total == 2 * shared + sum(rest)


def test_the_emulators_table_has_it() -> None:
    assert WIRES["sglang"] is SglangWire
    assert SglangWire.manners.listens_while_loading is False
    conf = played(EmulateConf(), SglangWire)
    assert (conf.prefix_cache, conf.step_tokens) == (True, 8192)


@contextmanager
def running(*options: str) -> Iterator[str]:
    with emulated("--step-ms", "1", *options, engine="sglang") as server:
        yield server.base_url


def asked(base_url: str, call_: HttpCall) -> Answer:
    answer = call(Endpoint(base_url), call_, 20.0)
    assert isinstance(answer, Answer), answer
    return answer


@pytest.mark.skipif(sys.platform != "linux", reason="the server needs epoll")
def test_as_a_process_it_refuses_a_stream_above_its_queue() -> None:
    with running("--max-in-flight", "1") as base_url:
        url = urlsplit(base_url)
        long = Request(index=0, prompt="hello", input_tokens=2, max_output_tokens=8000)
        body = ADAPTER.encode(long).body
        with socket.create_connection((url.hostname, url.port), timeout=20.0) as first:
            head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
            first.sendall(head + body)
            assert first.recv(15) == b"HTTP/1.1 200 OK"
            refused = asked(base_url, ADAPTER.encode(long))
            assert refused.head.status == 200
            decoder = ADAPTER.decoder(refused.head)
            (chunk,) = [*decoder.feed(refused.body), *decoder.end()]
            assert chunk.error is ErrorClass.STREAM_ERROR
            whole = asked(base_url, post(COMPLETIONS, {"prompt": "a"}))
            assert whole.head.status == 503
