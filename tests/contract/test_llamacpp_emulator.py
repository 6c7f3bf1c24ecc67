"""The emulated llama.cpp beside captures of the real one: the same chunks, shapes and figures."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.llamacpp import LlamaCppAdapter
from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf, EngineConf, ModelConf
from harness.emulate.model.engine import EngineModel
from harness.emulate.model.sequence import Sequence
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.wires.llamacpp.wire import LlamaCppWire
from harness.emulate.wires.wire import Ask
from harness.testing import AdapterSuite, read_http
from harness.types import Chunk, ResponseHead

WIRE = Path(__file__).parent.parent / "data" / "wire"
ADAPTER = LlamaCppAdapter(EngineConf(name="llamacpp"), ModelConf(name="smol"))
CONF = EmulateConf(slots=2, max_model_len_tokens=2048)
COMPLETIONS, CHAT, NATIVE = "/v1/completions", "/v1/chat/completions", "/completion"
FORCED = {"max_tokens": 4, "ignore_eos": True, "temperature": 0}
STREAM = {**FORCED, "stream": True}
USAGE = {"stream_options": {"include_usage": True}}
IDS = [7, 8, 9, 10, 11]
TALK = [{"role": "user", "content": "x" * (32 * 4 - len("<|user|>"))}]  # 32 tokens of ours
ASKED: dict[str, tuple[str, Any]] = {
    "completions-stream-usage": (COMPLETIONS, {"prompt": IDS, **STREAM, **USAGE}),
    "completions-stream-plain": (COMPLETIONS, {"prompt": IDS, **STREAM}),
    "completions-nonstream": (COMPLETIONS, {"prompt": IDS[:3], **FORCED}),
    "chat-stream-usage": (CHAT, {"messages": TALK, **STREAM, **USAGE}),
    "chat-nonstream": (CHAT, {"messages": TALK, **FORCED}),
    "native-stream": (NATIVE, {"prompt": IDS, "timings_per_token": True, **STREAM}),
    "err-badjson": (COMPLETIONS, b"{bad"),
    "err-toolong": (COMPLETIONS, {"prompt": [5] * 3000, "max_tokens": 4}),
}
CACHED = {"completions-stream-plain": 4, "completions-nonstream": 1, "chat-nonstream": 31}


def capture(name: str) -> tuple[ResponseHead, list[bytes]]:
    return read_http((WIRE / f"llamacpp-b11434-{name}.http").read_bytes())


def written(ask: Ask, *, cached: int = 0) -> bytes:
    """All bytes of an answer, played by the model in virtual time."""
    model = EngineModel(CONF)
    sequence = Sequence(prompt_tokens=ask.prompt_tokens, output_tokens=ask.output_tokens)
    assert ask.watch is not None
    ask.watch(sequence)
    sequence.slot = 1
    model.submit(sequence)
    data = ask.answer.head
    while model.begin() is not None:
        data += ask.answer.started if model.admitted else b""
        for one in model.emits:
            k = one.generated
            is_last = k == ask.output_tokens - 1
            data += ask.answer.last(k, cached) if is_last else ask.answer.token(k)
        model.finish()
    return data


def emulated_answer(path: str, body: Any, *, cached: int = 0, method: str = "POST") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = HttpRequest(method=method, path=path, body=data)
    player = Player(CONF, Pace(1.0))
    asked = LlamaCppWire(CONF, ("smol",)).respond(request, 1, player)
    return asked if isinstance(asked, bytes) else written(asked, cached=cached)


def emulated(name: str) -> tuple[ResponseHead, list[bytes]]:
    path, body = ASKED[name]
    return read_http(emulated_answer(path, body, cached=CACHED.get(name, 0)))


def chunks(head: ResponseHead, pieces: list[bytes]) -> list[Chunk]:
    """What the adapter reads; of texts only whether there is one."""
    decoder = ADAPTER.decoder(head)
    found = [chunk for piece in pieces for chunk in decoder.feed(piece)] + decoder.end()
    assert found
    return [replace(one, text="text" if one.text else "") for one in found]


def shape(value: Any) -> Any:
    """Keys and JSON types, without values; of a list its first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value and isinstance(value[0], dict) else "array"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def events(pieces: list[bytes]) -> Iterator[Any]:
    for line in b"".join(pieces).split(b"\n\n"):
        payload = line.removeprefix(b"data: ").strip()
        if payload:
            yield "done" if payload == b"[DONE]" else json.loads(payload)


def shapes_of(pieces: list[bytes]) -> list[Any]:
    found = [shape(event) for event in events(pieces)]
    for one in found:
        if isinstance(one, dict) and "generation_settings" in one:
            one["generation_settings"]["logit_bias"] = "array"  # ids of its end tokens in the real
    return found


@pytest.mark.parametrize("name", [name for name in ASKED if name != "native-stream"])
def test_the_adapter_reads_the_same_chunks_as_from_the_real_server(name: str) -> None:
    real, ours = chunks(*capture(name)), chunks(*emulated(name))
    if name == "err-badjson":  # each parser has its own words
        assert all("parse_error.101" in (one.message or "") for one in (*real, *ours))
        real, ours = ([replace(one, message="") for one in them] for them in (real, ours))
    assert ours == real


@pytest.mark.parametrize("name", ASKED)
def test_head_events_and_http_chunks_have_the_same_form(name: str) -> None:
    (real_head, real), (head, ours) = capture(name), emulated(name)
    assert head.status == real_head.status
    assert set(head.headers) == set(real_head.headers)
    for header in ("content-type", "server", "transfer-encoding", "keep-alive", "connection"):
        assert head.headers.get(header) == real_head.headers.get(header)
    assert shapes_of(ours) == shapes_of(real)
    if "stream" in name and "nonstream" not in name:
        assert [piece.count(b"data: ") for piece in ours] == [p.count(b"data: ") for p in real]


def test_the_native_stream_counts_its_tokens_and_has_no_done() -> None:
    real, ours = (list(events(pieces)) for _, pieces in (capture("native-stream"), EMULATED_NATIVE))
    for key in ("tokens_predicted", "tokens_evaluated", "stop", "stop_type", "truncated"):
        assert [one.get(key) for one in ours] == [one.get(key) for one in real]
    assert ours[-1]["id_slot"] == 1
    assert [one["id_slot"] for one in ours[:-1]] == [-1] * 4
    assert ours[-1]["tokens_cached"] == real[-1]["tokens_cached"] == 8
    assert "done" not in (*ours, *real)


EMULATED_NATIVE = emulated("native-stream")


def test_timings_are_those_of_the_model() -> None:
    last = [one for one in events(emulated("completions-stream-usage")[1]) if one != "done"][-1]
    timings = last["timings"]
    first_ms = 5 / 8000 * 1e3 + 20
    later_ms = sum(20 + 0.1 + 5e-5 * held for held in (5, 6, 7))
    assert timings["prompt_ms"] == pytest.approx(first_ms)
    assert timings["predicted_ms"] == pytest.approx(later_ms)
    assert timings["predicted_per_token_ms"] == pytest.approx(later_ms / 3)
    assert (timings["prompt_n"], timings["predicted_n"], timings["cache_n"]) == (5, 4, 0)


def tell(path: str, state: Player, method: str = "GET", body: Any = None) -> tuple[Any, bytes]:
    request = HttpRequest(method=method, path=path, body=json.dumps(body).encode())
    answer = LlamaCppWire(CONF, ("smol",)).respond(request, 1, state)
    assert isinstance(answer, bytes)
    head, pieces = read_http(answer)
    return head, b"".join(pieces)


def at_rest() -> Player:
    """An engine both of whose slots have worked."""
    player = Player(CONF, Pace(1.0))
    for prompt in (IDS, IDS[:3]):
        body = json.dumps({"prompt": prompt, **STREAM}).encode()
        request = HttpRequest(method="POST", path=COMPLETIONS, body=body)
        ask = LlamaCppWire(CONF, ("smol",)).respond(request, 1, player)
        assert isinstance(ask, Ask)
        sequence = Sequence(prompt_tokens=ask.prompt_tokens, output_tokens=4)
        player._slots.take(sequence, ask.answer)
        sequence.generated = 4
        player._slots.leave(sequence)
    return player


@pytest.mark.parametrize(
    ("name", "path"),
    [("health", "/health"), ("models", "/v1/models"), ("props", "/props"), ("slots", "/slots")],
)
def test_what_the_server_tells_has_the_same_keys(name: str, path: str) -> None:
    real_head, pieces = capture(name)
    head, body = tell(path, at_rest())
    assert (head.status, set(head.headers)) == (200, set(real_head.headers))
    assert head.headers["content-type"] == real_head.headers["content-type"]
    assert shape(json.loads(body)) == shape(json.loads(b"".join(pieces)))


def test_tokens_have_the_same_form() -> None:
    _, pieces = capture("tokenize")
    _, body = tell("/tokenize", at_rest(), "POST", {"content": "Hello world"})
    assert shape(json.loads(body)) == shape(json.loads(b"".join(pieces)))
    assert len(json.loads(body)["tokens"]) == 3  # of 4 characters each


def test_the_metrics_have_the_same_names_types_and_order() -> None:
    real_head, pieces = capture("metrics")
    head, body = tell("/metrics", at_rest())
    assert set(head.headers) == set(real_head.headers)
    assert head.headers["content-type"] == real_head.headers["content-type"]
    forms = [
        re.sub(rb"(?m)^(# HELP \S+ ).*$", rb"\1", re.sub(rb"(?m)^(l\S+) .*$", rb"\1", text))
        for text in (body, b"".join(pieces))
    ]
    assert forms[0] == forms[1]
    assert forms[0].count(b"# TYPE llamacpp:") == 15


def test_the_adapter_reads_the_same_figures() -> None:
    bodies = {name: b"".join(capture(name)[1]) for name in ("metrics", "slots", "props", "models")}
    paths = {"metrics": "/metrics", "slots": "/slots", "props": "/props", "models": "/v1/models"}
    ours = {name: tell(path, at_rest())[1] for name, path in paths.items()}
    real_sample, sample = ADAPTER.engine_sample(bodies), ADAPTER.engine_sample(ours)
    for name in sample.__slots__:
        assert (getattr(sample, name) is None) == (getattr(real_sample, name) is None), name
    assert (sample.running, sample.waiting, sample.kv_usage_ratio) == (0, 0, 0)
    real, found = ADAPTER.identity(bodies), ADAPTER.identity(ours)
    assert (real.is_emulated, found.is_emulated) == (False, True)
    assert replace(found, is_emulated=False, version=real.version) == real


class TestEmulatedCompletions(AdapterSuite):
    adapter = ADAPTER
    body = b"".join(emulated("completions-stream-usage")[1])
    output_tokens, prompt_tokens, token_chunks = 4, 5, 4
    text, finish_reason = " tok0 tok1 tok2 tok3", "length"


class TestEmulatedChat(AdapterSuite):
    adapter = ADAPTER
    body = b"".join(emulated("chat-stream-usage")[1])
    output_tokens, prompt_tokens, token_chunks = 4, 32, 4
    text, finish_reason = " tok0 tok1 tok2 tok3", "length"
