"""The emulated vLLM beside captures of the real one: same chunks, same fields, same refusals."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.vllm import VllmAdapter
from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf, EngineConf, ModelConf, Route
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.wires.vllm.wire import VllmWire
from harness.emulate.wires.wire import Ask
from harness.testing import read_http
from harness.types import Chunk, EngineIdentity, ErrorClass, Provenance, ResponseHead

WIRE = Path(__file__).parent.parent / "data" / "wire"
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USAGE = {"include_usage": True}
CREATED = {"created", "id"}  # of the moment


def capture(name: str) -> bytes:
    return (WIRE / f"vllm-0.32.0-{name}.http").read_bytes()


class CapturedWire(VllmWire):
    """As the captured server was started: without --enable-prompt-tokens-details."""

    has_prompt_details = False


class Server:
    """The emulated server."""

    def __init__(self, *names: str, **knobs: Any) -> None:
        conf = EmulateConf(max_model_len_tokens=1024, prefix_cache=True, **knobs)
        self.wire = CapturedWire(conf, names)
        self.player = Player(conf, Pace(1.0))

    def raw(self, path: str, body: object = None, method: str = "POST") -> bytes:
        """The whole answer as it goes over the wire."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.wire.respond(HttpRequest(method=method, path=path, body=data), 1, self.player)
        if not isinstance(answer, Ask):
            return answer
        last = answer.output_tokens - 1
        tokens = b"".join(answer.answer.token(k) for k in range(last))
        return answer.answer.head + tokens + answer.answer.last(last, 0)


SERVER = Server("tiny")


def ask(path: str, prompt_tokens: int, tokens: int, **more: Any) -> bytes:
    """The emulator's answer to a request of these lengths."""
    body = {"model": "tiny", "max_tokens": tokens, "ignore_eos": True, **more}
    if path == CHAT:
        text = "a" * (4 * prompt_tokens - len("<|user|>"))
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = list(range(5, 5 + prompt_tokens))
    return SERVER.raw(path, body)


STREAMS = {
    "completions-stream-usage": ask(COMPLETIONS, 10, 4, stream=True, stream_options=USAGE),
    "completions-stream-plain": ask(COMPLETIONS, 10, 4, stream=True),
    "completions-stream-ids-continuous": ask(
        path=COMPLETIONS,
        prompt_tokens=3,
        tokens=3,
        stream=True,
        stream_options={**USAGE, "continuous_usage_stats": True},
        return_token_ids=True,
    ),
    "chat-stream-usage": ask(CHAT, 13, 4, stream=True, stream_options=USAGE),
}
WHOLES = {
    "completions-nonstream": ask(COMPLETIONS, 3, 4),
    "chat-nonstream": ask(CHAT, 13, 4),
}
REFUSALS = {
    "err-badjson": SERVER.raw(COMPLETIONS, b"{"),
    "err-toolong": SERVER.raw(COMPLETIONS, {"prompt": [5] * 3000, "max_tokens": 4}),
}
ANSWERS = STREAMS | WHOLES | REFUSALS


def chunks_of(raw: bytes, route: Route) -> list[Chunk]:
    """What the adapter makes of it, the texts left aside."""
    adapter = VllmAdapter(EngineConf(name="vllm", route=route), ModelConf(name="tiny"))
    head, pieces = read_http(raw)
    decoder = adapter.decoder(head)
    chunks = [chunk for piece in pieces for chunk in decoder.feed(piece)] + decoder.end()
    return [replace(chunk, text="x" if chunk.text else "") for chunk in chunks]


def shape(value: Any) -> Any:
    """Keys in order and the kinds of values, for a field-by-field comparison."""
    if isinstance(value, dict):
        return [(key, shape(inner)) for key, inner in value.items()]
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def events(raw: bytes) -> Iterator[Any]:
    """Each event's JSON, and [DONE] as it is."""
    body = b"".join(read_http(raw)[1])
    for event in body.split(b"\n\n")[:-1]:
        assert event.startswith(b"data: ")
        data = event.removeprefix(b"data: ")
        yield data if data == b"[DONE]" else json.loads(data)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_adapter_reads_the_same_chunks(name: str) -> None:
    route = Route.CHAT if name.startswith("chat") else Route.COMPLETIONS
    real, ours = chunks_of(capture(name), route), chunks_of(ANSWERS[name], route)
    assert len(real) > 0
    assert ours == real


@pytest.mark.parametrize("name", STREAMS)
def test_every_event_has_the_same_fields(name: str) -> None:
    real, ours = list(events(capture(name))), list(events(STREAMS[name]))
    assert len(real) >= 5
    assert [shape(event) for event in ours] == [shape(event) for event in real]
    usages = [event.get("usage") for event in ours if isinstance(event, dict)]
    assert usages == [event.get("usage") for event in real if isinstance(event, dict)]


@pytest.mark.parametrize("name", STREAMS)
def test_each_event_is_one_http_chunk_and_the_head_comes_alone(name: str) -> None:
    real_head, real = read_http(capture(name))
    head, ours = read_http(STREAMS[name])
    assert len(ours) == len(real)
    left_out = {"date", "vary"}
    assert head.headers == {k: v for k, v in real_head.headers.items() if k not in left_out}


@pytest.mark.parametrize("name", WHOLES)
def test_a_whole_answer_has_the_same_fields(name: str) -> None:
    (real,), (ours,) = read_http(capture(name))[1], read_http(WHOLES[name])[1]
    assert shape(json.loads(ours)) == shape(json.loads(real))
    assert json.loads(ours)["usage"] == json.loads(real)["usage"]


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_the_same_word_for_word(name: str) -> None:
    head, (real,) = read_http(capture(name))
    our_head, (ours,) = read_http(REFUSALS[name])
    assert (our_head.status, json.loads(ours)) == (head.status, json.loads(real))


@pytest.mark.parametrize("is_stream", [True, False])
def test_started_by_our_adapter_it_tells_what_the_cache_had(*, is_stream: bool) -> None:
    server = Server("tiny")
    server.wire = VllmWire(EmulateConf(), ("tiny",))
    options = {"stream": True, "stream_options": USAGE} if is_stream else {}
    raw = server.raw(COMPLETIONS, {"prompt": [5, 6, 7], "max_tokens": 2, **options})
    [told] = [c.cached_tokens for c in chunks_of(raw, Route.COMPLETIONS) if c.prompt_tokens]
    assert told == 0


def test_a_chat_with_running_usage_and_ids() -> None:
    """As its completions do (captured); a chat's own was only read in the source."""
    options = {**USAGE, "continuous_usage_stats": True}
    raw = ask(CHAT, 13, 2, stream=True, stream_options=options, return_token_ids=True)
    role, first, last, usage, done = events(raw)
    assert [e["usage"]["completion_tokens"] for e in (role, first, last, usage)] == [0, 1, 2, 2]
    assert len(role["prompt_token_ids"]) == 13
    assert [len(e["choices"][0]["token_ids"]) for e in (first, last)] == [1, 1]
    assert (usage["choices"], done) == ([], b"[DONE]")
    kinds = [chunk.total_tokens for chunk in chunks_of(raw, Route.CHAT) if chunk.text]
    assert kinds == [1, 2]


def test_a_failure_in_the_middle_is_the_captured_event() -> None:
    body = {"prompt": [5, 6, 7], "stream": True, "max_tokens": 4}
    request = HttpRequest(method="POST", path=COMPLETIONS, body=json.dumps(body).encode())
    asked = SERVER.wire.respond(request, 1, SERVER.player)
    assert isinstance(asked, Ask)
    assert asked.failure is not None
    raw = asked.answer.head + asked.answer.token(0) + asked.failure
    real = capture("midstream-enginedeath")
    assert [shape(event) for event in events(raw)] == [shape(event) for event in events(real)]
    assert list(events(raw))[1] == list(events(real))[1]
    assert chunks_of(raw, Route.COMPLETIONS) == chunks_of(real, Route.COMPLETIONS)
    assert chunks_of(raw, Route.COMPLETIONS)[-1].error is ErrorClass.STREAM_ERROR


def json_of(raw: bytes) -> tuple[ResponseHead, Any]:
    head, pieces = read_http(raw)
    return head, json.loads(b"".join(pieces))


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("models", "/v1/models", None),
        ("version", "/version", None),
        ("tokenize", "/tokenize", {"prompt": "x" * 18}),
        ("tokenize", "/tokenize", {"messages": [{"role": "user", "content": "x" * 12}]}),
    ],
)
def test_the_other_routes_have_the_same_fields(name: str, path: str, body: object) -> None:
    _, real = json_of(capture(name))
    head, ours = json_of(SERVER.raw(path, body, "POST" if body else "GET"))
    assert (head.status, shape(ours)) == (200, shape(real))
    assert ours.get("count") == real.get("count")
    assert ours.get("max_model_len") == real.get("max_model_len")


def test_health_ping_and_what_is_not_there() -> None:
    for path in ("/health", "/ping"):
        head, pieces = read_http(SERVER.raw(path, method="GET"))
        assert (head.status, pieces) == (200, [])
    assert json_of(SERVER.raw("/load", method="GET"))[1] == {"server_load": 0}
    assert json_of(SERVER.raw("/reset_prefix_cache"))[1] == {"success": True}
    for path in ("/detokenize", "/v2"):
        head, body = json_of(SERVER.raw(path))
        assert (head.status, body) == (404, {"detail": "Not Found"})
    assert read_http(SERVER.raw("/tokenize", method="GET"))[0].status == 405


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "param"),
    [
        (COMPLETIONS, {"prompt": "a", "model": "x"}, 404, "NotFoundError", "model"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 0}, 400, "BadRequestError", "max_tokens"),
        (COMPLETIONS, {"prompt": "a", "stream": "x"}, 400, "Bad Request", "body.stream"),
        (COMPLETIONS, {"prompt": "a", "stream_options": {}}, 400, "Bad Request", "body.stream_opt"),
        (COMPLETIONS, [], 400, "Bad Request", "body"),
        (COMPLETIONS, b"\xff", 400, "Bad Request", "body"),
        ("/tokenize", b"{]", 400, "Bad Request", "body.1"),
        ("/tokenize", {}, 400, "BadRequestError", "messages"),
        ("/tokenize", [], 400, "BadRequestError", "messages"),
    ],
)
def test_a_refusal_names_its_kind(
    path: str, body: object, status: int, kind: str, param: str
) -> None:
    head, answer = json_of(SERVER.raw(path, body))
    error = answer["error"]
    assert (head.status, error["code"], error["type"]) == (status, status, kind)
    assert error["param"].startswith(param)
    assert error["message"]


def test_troubles_have_vllms_status() -> None:
    full, failed = json_of(SERVER.wire.overloaded(9, 2)), json_of(SERVER.wire.failed())
    assert [head.status for head, _ in (full, failed)] == [503, 500]
    assert full[1]["error"]["type"] == "ServiceUnavailableError"
    assert "retry-after" not in full[0].headers
    assert VllmWire.manners.listens_while_loading is False


def test_the_adapter_knows_it_for_an_emulator() -> None:
    adapter = VllmAdapter(EngineConf(name="vllm"), ModelConf(name="m", served_name="tiny"))
    server = Server("tiny", "french", kv_blocks=100)
    bodies = {
        name: b"".join(read_http(server.raw(adapter.probes[name].path, method="GET"))[1])
        for name in adapter.identity_probes
    }
    assert adapter.identity(bodies) == EngineIdentity(
        version="0.32.0",
        model="tiny",
        max_model_len_tokens=1024,
        kv_capacity_tokens=1600,
        is_emulated=True,
    )
    cards = json.loads(bodies["models"])["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [("tiny", None), ("french", "tiny")]
    sample = adapter.engine_sample(bodies)
    assert sample.kv_provenance is Provenance.MEASURED
    assert (sample.running, sample.waiting, sample.preemptions_total) == (0, 0, 0)


def names_of(metrics: bytes) -> dict[str, set[str]]:
    """Each series' name to the keys of its labels."""
    lines = [line for line in metrics.decode().splitlines() if line.startswith("vllm:")]
    found: dict[str, set[str]] = {}
    for line in lines:
        name, _, labels = line.rpartition(" ")[0].partition("{")
        found[name] = {part.partition("=")[0] for part in labels.rstrip("}").split('",') if part}
    return found


def test_the_metrics_have_the_captured_names_and_labels() -> None:
    real = names_of(b"".join(read_http(capture("metrics"))[1]))
    ours = names_of(b"".join(read_http(SERVER.raw("/metrics", method="GET"))[1]))
    assert len(ours) > 20
    info = "vllm:cache_config_info"
    assert ours.pop(info) <= real.pop(info)
    assert {name: labels for name, labels in ours.items() if real.get(name) != labels} == {}
    head, _ = read_http(SERVER.raw("/metrics", method="GET"))
    real_head, _ = read_http(capture("metrics"))
    assert head.headers["content-type"] == real_head.headers["content-type"]
