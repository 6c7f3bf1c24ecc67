"""Captures of `transformers serve` through its adapter, and beside them the emulator's answers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.openai_compatible import is_emulated
from adapters.transformers import TransformersAdapter
from harness.answer import Answer
from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf, EngineConf, ModelConf, Route
from harness.emulate.engines import played
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.wires.transformers.wire import TransformersWire
from harness.emulate.wires.wire import Ask
from harness.testing import AdapterSuite, read_http
from harness.types import ChunkKind, ErrorClass, HttpCall, Request, ResponseHead

WIRE = Path(__file__).parent.parent / "data" / "wire"
MODEL = ModelConf(name="smol")
NAME = "./smol"
CAPITAL = Request(index=0, prompt="The capital of France is", input_tokens=5, max_output_tokens=6)
STREAMS = [
    path.stem.removeprefix("transformers-")
    for path in sorted(WIRE.glob("transformers-*.http"))
    if b"text/event-stream" in path.read_bytes()
]


def adapter(
    route: Route = Route.COMPLETIONS, *, one_at_a_time: bool = False
) -> TransformersAdapter:
    running = 1 if one_at_a_time else None
    engine = EngineConf(
        name="transformers", route=route, max_running=running, prefix_cache=not one_at_a_time
    )
    return TransformersAdapter(engine, MODEL)


CONTINUOUS, ONE = adapter(), adapter(one_at_a_time=True)
CHAT, CHAT_ONE = adapter(Route.CHAT), adapter(Route.CHAT, one_at_a_time=True)


def captured(name: str) -> tuple[ResponseHead, list[bytes]]:
    return read_http((WIRE / f"transformers-{name}.http").read_bytes())


def body_of(name: str) -> bytes:
    return b"".join(captured(name)[1])


def answer_of(head: ResponseHead, pieces: list[bytes]) -> Answer:
    answer = Answer(CONTINUOUS.decoder(head))
    for i, piece in enumerate(pieces):
        answer.feed(float(i), piece)
    answer.end(float(len(pieces)))
    return answer


class TestCompletions(AdapterSuite):
    adapter = ONE
    body = body_of("5.19-completions-stream")
    output_tokens, prompt_tokens, token_chunks = 6, 5, 6
    text, finish_reason = " Paris.\n\nThe answer", "length"


class TestContinuousCompletions(AdapterSuite):
    adapter = CONTINUOUS
    body = body_of("5.24-cb-completions-stream")
    output_tokens, prompt_tokens, token_chunks = 6, 5, 6
    text, finish_reason = " Paris.\n\nThe answer", "length"


class TestChat(AdapterSuite):
    adapter = CHAT
    body = body_of("5.19-chat-stream")
    output_tokens, prompt_tokens, token_chunks = 6, 33, 6
    text, finish_reason = "Hello there! I'm here", "length"


class Emulated:
    """The emulator's wire, with one slot for the mode of one at a time."""

    def __init__(self, *names: str, **knobs: Any) -> None:
        conf = played(EmulateConf(**knobs), TransformersWire)
        self.wire = TransformersWire(conf, names)
        self.player = Player(conf, Pace(1.0))
        self.number = 0

    def respond(self, call: HttpCall) -> bytes | Ask:
        self.number += 1
        request = HttpRequest(
            method=call.method, path=call.path, headers=dict(call.headers), body=call.body
        )
        return self.wire.respond(request, self.number, self.player)

    def reply(self, call: HttpCall) -> tuple[ResponseHead, list[bytes]]:
        """Head and pieces of the whole answer, as a client gets them."""
        answer = self.respond(call)
        return read_http(answer if isinstance(answer, bytes) else written(answer))


def written(ask: Ask) -> bytes:
    last = ask.output_tokens - 1
    tokens = b"".join(ask.answer.token(k) for k in range(last))
    return ask.answer.head + tokens + ask.answer.last(last, 0)


def post(path: str, body: object) -> HttpCall:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpCall(path=path, headers={"content-type": "application/json"}, body=data)


def meaning(head: ResponseHead, pieces: list[bytes]) -> list[tuple[Any, ...]]:
    """What the adapter reads, without the text and what a tokenizer counts."""
    decoder = CONTINUOUS.decoder(head)
    chunks = [chunk for piece in pieces for chunk in decoder.feed(piece)] + decoder.end()
    assert chunks
    return [
        (c.kind, bool(c.text), c.total_tokens, c.prompt_tokens is None, c.finish_reason, c.error)
        for c in chunks
    ]


def shape(value: Any) -> Any:
    """The keys of a JSON value, all the way down, and the types of its leaves."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape(one) for one in value]
    return type(value).__name__


def shapes(pieces: list[bytes]) -> list[Any]:
    body = b"".join(pieces)
    if not body.startswith((b"data: ", b"{")):
        return [body]
    if not body.startswith(b"data: "):
        return [shape(json.loads(body))]
    events = body.split(b"\n\n")
    assert events.pop() == b""
    return [shape(json.loads(event.removeprefix(b"data: "))) for event in events]


def header_names(head: ResponseHead) -> set[str]:
    return set(head.headers) - {"date", "server"}


def assert_alike(
    real: tuple[ResponseHead, list[bytes]], played: tuple[ResponseHead, list[bytes]]
) -> None:
    """Same status, header names, HTTP chunks, keys of every event, and meaning to the adapter."""
    assert played[0].status == real[0].status
    assert header_names(played[0]) == header_names(real[0])
    assert len(played[1]) == len(real[1])
    assert shapes(played[1]) == shapes(real[1])
    assert meaning(*played) == meaning(*real)


def test_there_are_captures_of_both_modes() -> None:
    assert len(STREAMS) >= 14
    assert any("cb" in name for name in STREAMS)


@pytest.mark.parametrize("name", STREAMS)
def test_every_capture_of_a_stream_is_an_answer_or_says_why_not(name: str) -> None:
    answer = answer_of(*captured(name))
    assert answer.stream_end_s is not None
    if name == "5.19-stream-error":
        assert answer.error is ErrorClass.STREAM_ERROR
        said = "`max_new_tokens` must be greater than 0, but is 0."
        assert answer.error_message == said
    else:
        assert answer.error is None
        assert answer.output_tokens is not None


def test_the_role_that_comes_at_once_is_no_token() -> None:
    answer = answer_of(*captured("5.19-chat-stream"))
    assert (answer.chunk_s[0], len(answer.chunk_s)) == (1.0, 6)


def test_a_stream_without_done_is_complete_by_its_finish_reason() -> None:
    head, pieces = captured("5.24-completions-stream")
    assert b"[DONE]" not in b"".join(pieces)
    assert answer_of(head, pieces).error is None
    assert answer_of(head, pieces[:-1]).error is ErrorClass.INCOMPLETE_STREAM


def test_a_forced_length_is_that_of_the_usage_and_hidden_end_tokens_have_no_event() -> None:
    held_down = answer_of(*captured("5.24-forced-length"))
    never_ends = answer_of(*captured("5.24-cb-forced-length"))
    assert (held_down.output_tokens, len(held_down.chunk_s)) == (40, 40)
    assert (never_ends.output_tokens, len(never_ends.chunk_s)) == (40, 38)
    assert held_down.finish_reason == never_ends.finish_reason == "length"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("5.19-bad-json", ErrorClass.HTTP_4XX, "JSON decode error"),
        ("5.19-token-prompt", ErrorClass.HTTP_4XX, "prompt must be a string."),
        ("5.19-unknown-field", ErrorClass.HTTP_4XX, "Unexpected fields in the request: {'ignore_"),
        ("5.19-wrong-model", ErrorClass.HTTP_4XX, "Server is pinned to './smol'; requested 'nope"),
        ("5.19-error-500", ErrorClass.HTTP_5XX, "Internal Server Error"),
        ("5.24-cb-worker-dead", ErrorClass.HTTP_5XX, "CB worker is dead and cannot accept"),
    ],
)
def test_a_refused_request_says_why(name: str, error: ErrorClass, message: str) -> None:
    answer = answer_of(*captured(name))
    assert answer.error is error
    assert (answer.error_message or "").startswith(message)


def test_what_it_says_it_is() -> None:
    models = body_of("5.24-models")
    assert CONTINUOUS.identity({"models": models}).model == "./smollm2-hf"
    assert not is_emulated(models)
    assert CONTINUOUS.identity({"models": body_of("5.19-models")}).model is None


@pytest.mark.parametrize(
    ("name", "mine", "slots"),
    [
        ("5.19-completions-stream", ONE, 1),
        ("5.24-completions-stream", ONE, 1),
        ("5.19-cb-completions-stream", CONTINUOUS, None),
        ("5.24-cb-completions-stream", CONTINUOUS, None),
        ("5.19-chat-stream", CHAT_ONE, 1),
    ],
)
def test_the_emulator_streams_as_the_server(
    name: str, mine: TransformersAdapter, slots: int | None
) -> None:
    played = Emulated(NAME, slots=slots).reply(mine.encode(CAPITAL))
    assert_alike(captured(name), played)
    assert json.loads(played[1][-1][6:])["model"] == "./smol@main"


@pytest.mark.parametrize(
    ("name", "tokens"), [("5.19-forced-length", 30), ("5.24-forced-length", 40)]
)
def test_the_emulator_forces_a_length_one_at_a_time(name: str, tokens: int) -> None:
    request = replace(CAPITAL, max_output_tokens=tokens)
    engine = Emulated(NAME, slots=1, natural_output_tokens=2)
    assert_alike(captured(name), engine.reply(CHAT_ONE.encode(request)))


def test_the_emulator_forces_a_length_in_continuous_batching() -> None:
    call = CHAT.encode(replace(CAPITAL, max_output_tokens=40))
    played = answer_of(*Emulated(NAME, natural_output_tokens=2).reply(call))
    real = answer_of(*captured("5.24-cb-forced-length"))
    assert (played.output_tokens, played.finish_reason) == (real.output_tokens, real.finish_reason)


@pytest.mark.parametrize(
    ("name", "slots", "tokens"),
    [
        ("5.19-chat-stream-stop", 1, 24),
        ("5.24-chat-stream-stop", 1, 30),
        ("5.24-cb-chat-stream-stop", None, 30),
    ],
)
def test_the_emulator_stops_as_the_server(name: str, slots: int | None, tokens: int) -> None:
    """The end token counts, and has no event."""
    messages = [{"role": "user", "content": "Say hello."}]
    body = {"messages": messages, "max_tokens": 60, "temperature": 0.0, "stream": True}
    call = post("/v1/chat/completions", body)
    asks = (
        Emulated(NAME, slots=slots, seed=seed, natural_output_tokens=tokens).respond(call)
        for seed in range(2000)
    )  # one of them has the natural length that was captured
    ask = next(one for one in asks if isinstance(one, Ask) and one.output_tokens == tokens)
    assert ask.finish_reason == "stop"
    assert_alike(captured(name), read_http(written(ask)))


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("5.19-completions", "/v1/completions", {"prompt": "a"}),
        ("5.19-chat", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
def test_the_emulator_answers_whole_as_the_server(
    name: str, path: str, body: dict[str, Any]
) -> None:
    forced = json.dumps({"max_new_tokens": 6, "min_new_tokens": 6})
    call = post(path, {**body, "max_tokens": 6, "generation_config": forced})
    assert_alike(captured(name), Emulated(NAME, slots=1).reply(call))


COMPLETIONS = "/v1/completions"
REFUSED = {
    "5.19-bad-json": post(COMPLETIONS, b'{"prompt":"a","max_tokens":'),
    "5.19-token-prompt": post(COMPLETIONS, {"prompt": [1, 2], "max_tokens": 1}),
    "5.19-unknown-field": post(COMPLETIONS, {"prompt": "a", "ignore_eos": True}),
    "5.19-wrong-model": post(COMPLETIONS, {"prompt": "a", "model": "nope"}),
    "5.19-error-500": post("/v1/chat/completions", {"max_tokens": 1}),
    "5.19-stream-error": post(COMPLETIONS, {"prompt": "a", "max_tokens": 0, "stream": True}),
    "5.19-health": HttpCall(method="GET", path="/health"),
    "5.19-metrics-404": HttpCall(method="GET", path="/metrics"),
    "5.24-get-405": HttpCall(method="GET", path=COMPLETIONS),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_emulator_refuses_in_the_servers_words(name: str) -> None:
    head, pieces = captured(name)
    played, said = Emulated(NAME, slots=1).reply(REFUSED[name])
    assert (played.status, b"".join(said)) == (head.status, b"".join(pieces))
    assert header_names(played) == header_names(head)
    assert played.headers["content-type"] == head.headers["content-type"]


def test_in_continuous_batching_no_tokens_are_no_error() -> None:
    call = post(COMPLETIONS, {"prompt": "a", "max_tokens": 0, "stream": True})
    played = Emulated(NAME).reply(call)
    assert_alike(captured("5.24-cb-zero-stream"), played)
    assert meaning(*played)[0][0] is ChunkKind.USAGE


def test_an_empty_prompt_ends_the_batch_and_one_at_a_time_only_itself() -> None:
    empty, good = post(COMPLETIONS, {"prompt": "", "max_tokens": 1}), CONTINUOUS.encode(CAPITAL)
    health = HttpCall(method="GET", path="/health")
    batch, single = Emulated(NAME), Emulated(NAME, slots=1)
    assert_alike(captured("5.24-cb-worker-dies"), batch.reply(empty))
    assert_alike(captured("5.19-error-500"), single.reply(empty))
    assert_alike(captured("5.24-cb-worker-dead"), batch.reply(good))
    unhealthy = batch.reply(health)
    assert unhealthy[0].status == 503
    assert b"".join(unhealthy[1]) == body_of("5.24-cb-unhealthy")
    assert single.reply(good)[0].status == 200
    assert single.reply(health)[0].status == 200


def test_the_emulators_model_list_is_that_of_the_server_and_says_that_it_is_emulated() -> None:
    head, pieces = Emulated(NAME).reply(HttpCall(method="GET", path="/v1/models"))
    assert head.status == 200
    assert shapes(pieces) == shapes(captured("5.24-models")[1])
    identity = CONTINUOUS.identity({"models": b"".join(pieces)})
    assert (identity.model, identity.is_emulated) == (NAME, True)
