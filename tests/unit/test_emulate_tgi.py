"""The emulator's TGI wire, by TGI's API description, its sources, and our adapter."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from adapters.metrics import Metrics, known_sample
from adapters.openai_compatible import is_emulated
from adapters.tgi import TgiAdapter
from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf, EngineConf, ModelConf, Route
from harness.emulate.engines import played
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.wires.tgi.wire import TgiWire
from harness.emulate.wires.wire import Ask
from harness.testing import read_http
from harness.types import Chunk, ChunkKind, Request, ResponseHead

DATA = Path(__file__).parent.parent / "data" / "tgi"
STREAM, CHAT, COMPLETIONS = "/generate_stream", "/v1/chat/completions", "/v1/completions"
JSON = {"content-type": "application/json"}
HELLO = [{"role": "user", "content": "hello"}]
ENDLESS = 10**9  # answers are as long as they may be


def schemas(value: Any) -> Any:
    """OpenAPI 3.0's schemas as JSON Schema: what may be null there has a word of its own."""
    if isinstance(value, list):
        return [schemas(one) for one in value]
    if not isinstance(value, dict):
        return value
    plain = {key: schemas(one) for key, one in value.items() if key != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if value.get("nullable") is True else plain


SCHEMAS = schemas(json.loads((DATA / "openapi.json").read_text()))


def check(name: str, value: Any) -> None:
    """ValidationError unless `value` is what TGI calls `name`."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": SCHEMAS["components"]}
    jsonschema.Draft202012Validator(schema).validate(value)


class Emulated:
    def __init__(self, *names: str, **knobs: Any) -> None:
        given = EmulateConf(**{"natural_output_tokens": ENDLESS} | knobs)
        self.conf = played(given, TgiWire)
        self.wire = TgiWire(self.conf, names or ("org/m",))
        self.player = Player(self.conf, Pace(1.0))
        self.number = 0

    def respond(self, path: str, body: object, method: str, headers: dict[str, str]) -> bytes | Ask:
        self.number += 1
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = HttpRequest(method=method, path=path, body=data, headers=headers)
        return self.wire.respond(request, self.number, self.player)

    def ask(self, path: str, body: dict[str, Any]) -> Ask:
        asked = self.respond(path, body, "POST", JSON)
        assert isinstance(asked, Ask), asked
        return asked

    def native(self, path: str = STREAM, inputs: str = "hello", **parameters: Any) -> Ask:
        return self.ask(path, {"inputs": inputs, "parameters": {"max_new_tokens": 3, **parameters}})

    def reply(
        self, path: str, body: object = None, method: str = "GET", headers: dict[str, str] = JSON
    ) -> tuple[ResponseHead, bytes]:
        data = self.respond(path, body, method, headers)
        assert isinstance(data, bytes), data
        return read(data)

    def figures(self) -> Metrics:
        return Metrics(self.reply("/metrics")[1])


def read(data: bytes) -> tuple[ResponseHead, bytes]:
    head, pieces = read_http(data)
    return head, b"".join(pieces)


def written(asked: Ask) -> tuple[ResponseHead, bytes]:
    """The answer as a client reads it, after the engine has begun with it."""
    assert asked.answer.started == b""
    last = asked.output_tokens - 1
    tokens = b"".join(asked.answer.token(k) for k in range(last))
    return read(asked.answer.head + tokens + asked.answer.last(last, 0))


def events(body: bytes) -> list[Any]:
    payloads = [line.removeprefix(b"data: ") for line in body.split(b"\n\n")[:-1]]
    return [json.loads(one) for one in payloads if one != b"[DONE]"]


def of_length(tokens: int, ask: Callable[[str], Ask]) -> Ask:
    """The answer to a prompt that ends by itself after so many tokens."""
    found = (ask(f"p{number:04}") for number in range(10_000))
    return next(one for one in found if one.output_tokens == tokens)


def undated(body: bytes) -> bytes:
    return re.sub(rb'"created":\d+', b'"created":0', body)


def test_the_description_refuses_what_is_not_in_it() -> None:
    for name, value in (("StreamResponse", {}), ("ErrorResponse", {"error": 3, "error_type": "x"})):
        with pytest.raises(jsonschema.ValidationError):
            check(name, value)
    check("StreamResponse", events((DATA / "native_eos.sse").read_bytes())[0])


def test_native_streams_are_byte_for_byte_those_of_the_sources() -> None:
    head, body = written(Emulated().native(details=True))
    assert body == (DATA / "native_length.sse").read_bytes()
    assert head.headers["x-compute-characters"] == "5"
    assert head.headers["x-accel-buffering"] == "no"
    assert head.headers["content-type"] == "text/event-stream"
    engine = Emulated(natural_output_tokens=4)
    asked = of_length(3, lambda p: engine.native(inputs=p, details=True, max_new_tokens=99))
    assert written(asked)[1] == (DATA / "native_eos.sse").read_bytes()
    assert asked.finish_reason == "eos_token"


def test_openai_streams_are_byte_for_byte_those_of_the_sources() -> None:
    engine = Emulated(natural_output_tokens=4)
    more = {"stream": True, "max_tokens": 99, "temperature": 0}

    def chat(text: str) -> Ask:
        talk = [{"role": "user", "content": text}]
        options = {"include_usage": True}
        return engine.ask(CHAT, {"messages": talk, "stream_options": options, **more})

    def completion(text: str) -> Ask:
        return engine.ask(COMPLETIONS, {"prompt": text, **more})

    for name, ask in (("chat_usage", chat), ("completions", completion)):
        _, body = written(of_length(3, ask))
        assert undated(body) == (DATA / f"{name}.sse").read_bytes()


def test_every_event_is_what_the_api_description_says() -> None:
    engine = Emulated()
    for parameters in ({"details": True}, {"details": False}, {"do_sample": True, "seed": 3}):
        body = written(engine.native(**parameters))[1]
        assert len(events(body)) == 3
        for event in events(body):
            check("StreamResponse", event)
        assert b"[DONE]" not in body
    chat = written(engine.ask(CHAT, {"messages": HELLO, "stream": True, "max_tokens": 3}))[1]
    assert [event["usage"] for event in events(chat)] == [None, None, None]  # it was not asked for
    for event in events(chat):
        check("ChatCompletionChunk", event)
        assert event["choices"][0]["delta"]["role"] == "assistant"
    text = written(engine.ask(COMPLETIONS, {"prompt": "a", "stream": True, "max_tokens": 2}))[1]
    first, last = events(text)
    check("Chunk", first)
    check("CompletionFinal", last)
    assert (first["choices"][0]["finish_reason"], "usage" in first) == ("", False)
    for body in (chat, text):
        assert body.endswith(b"data: [DONE]\n\n")


def test_whole_answers_are_what_the_api_description_says() -> None:
    engine = Emulated()
    head, body = written(engine.native("/generate", details=True, decoder_input_details=True))
    answer = json.loads(body)
    check("GenerateResponse", answer)
    assert answer["generated_text"] == " tok0 tok1 tok2"
    assert answer["details"]["generated_tokens"] == len(answer["details"]["tokens"]) == 3
    assert [one["text"] for one in answer["details"]["prefill"]] == ["hell", "o"]
    for name in ("compute-type", "compute-time", "compute-characters"):
        assert head.headers[f"x-{name}"]
    for name in ("total", "validation", "queue", "inference"):
        assert head.headers[f"x-{name}-time"].isdecimal()
    assert head.headers["x-time-per-token"].isdecimal()
    assert (head.headers["x-prompt-tokens"], head.headers["x-generated-tokens"]) == ("2", "3")

    bare = json.loads(written(engine.native("/generate"))[1])
    assert bare == {"generated_text": " tok0 tok1 tok2"}
    [compat] = json.loads(written(engine.native("/"))[1])
    assert compat == {"generated_text": "hello tok0 tok1 tok2"}  # there the prompt is in it

    chat = json.loads(written(engine.ask(CHAT, {"messages": HELLO, "max_tokens": 3}))[1])
    check("ChatCompletion", chat)
    assert (chat["id"], chat["choices"][0]["finish_reason"]) == ("", "length")
    text = json.loads(written(engine.ask(COMPLETIONS, {"prompt": ["a"], "max_tokens": 2}))[1])
    check("CompletionFinal", text)
    assert text["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def test_an_end_that_comes_by_itself_is_a_special_token() -> None:
    engine = Emulated(natural_output_tokens=1)
    (event,) = events(written(engine.native(details=True))[1])
    assert event["token"]["special"] is True
    assert (event["generated_text"], event["details"]["finish_reason"]) == ("", "eos_token")
    (chunk,) = events(written(engine.ask(CHAT, {"messages": HELLO, "stream": True}))[1])
    (choice,) = chunk["choices"]
    assert (choice["delta"]["content"], choice["finish_reason"]) == ("", "stop")
    whole = json.loads(written(engine.ask(COMPLETIONS, {"prompt": "a"}))[1])
    assert whole["choices"][0]["finish_reason"] == "stop"


def test_no_request_can_force_a_length() -> None:
    engine = Emulated(natural_output_tokens=20)
    lengths = [
        engine.native(inputs=f"prompt {n}", max_new_tokens=8000, ignore_eos=True).output_tokens
        for n in range(1000)
    ]
    assert sum(lengths) / len(lengths) == pytest.approx(20, rel=0.15)
    again = engine.native(inputs="prompt 7", max_new_tokens=8000)
    assert again.output_tokens == lengths[7]
    sampled = {engine.ask(STREAM, {"inputs": "a"}).output_tokens for _ in range(20)}
    assert len(sampled) > 1  # without parameters it samples
    seeded = {engine.native(do_sample=True, seed=4).output_tokens for _ in range(20)}
    assert len(seeded) == 1
    rest = Emulated(max_model_len_tokens=100).ask(CHAT, {"messages": HELLO})
    assert (rest.prompt_tokens, rest.output_tokens) == (4, 96)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/generate", b"{", 400, "Failed to parse the request body as JSON"),
        ("/generate", [], 422, "Failed to deserialize the JSON body"),
        ("/generate", {}, 422, "missing field `inputs`"),
        ("/generate", {"inputs": "a", "parameters": {"max_new_tokens": True}}, 422, "invalid type"),
        (CHAT, {"messages": []}, 422, "messages must be a list"),
        (COMPLETIONS, {"prompt": 3}, 422, "expected a string"),
        ("/tokenize", {}, 422, "missing field `inputs`"),
    ],
)
def test_a_body_of_the_wrong_shape_is_refused_in_plain_text(
    path: str, body: object, status: int, message: str
) -> None:
    head, said = Emulated().reply(path, body, "POST")
    assert head.status == status
    assert head.headers["content-type"].startswith("text/plain")
    assert message in said.decode()


def test_a_body_that_does_not_say_that_it_is_json_is_refused() -> None:
    head, _ = Emulated().reply("/generate", {"inputs": "a"}, "POST", {})
    assert head.status == 415


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_new_tokens": 99}, "`inputs` tokens + `max_new_tokens` must be <= 100. Given: 2"),
        ({"max_new_tokens": 0}, "`max_new_tokens` must be strictly positive"),
        ({"temperature": 0}, "`temperature` must be strictly positive"),
        ({"top_p": 1.0}, "`top_p` must be > 0.0 and < 1.0"),
        ({"top_k": 0}, "`top_k` must be strictly positive"),
        ({"repetition_penalty": -1}, "`repetition_penalty` must be strictly positive"),
        ({"frequency_penalty": 3}, "`frequency_penalty` must be >= -2.0 and <= 2.0"),
        ({"stop": list("abcde")}, "`stop` supports up to 4 stop sequences. Given: 5"),
        ({"best_of": 2}, "`best_of` != 1 is not"),
    ],
)
def test_an_invalid_request_is_422_or_an_event_of_a_stream(
    parameters: dict[str, Any], message: str
) -> None:
    engine = Emulated(max_model_len_tokens=100)
    body = {"inputs": "hello", "parameters": parameters}
    head, said = engine.reply("/generate", body, "POST")
    error = json.loads(said)
    check("ErrorResponse", error)
    assert (head.status, error["error_type"]) == (422, "validation")
    assert error["error"].startswith(f"Input validation error: {message}")
    for path, more in ((STREAM, {}), ("/", {"stream": True})):
        head, said = engine.reply(path, {**body, **more}, "POST")
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        (event,) = events(said)
        check("ErrorResponse", event)
        assert event["error"].startswith(f"Input validation error: {message}")
        assert b"[DONE]" not in said
    assert engine.figures().total("tgi_request_failure") == 3
    assert engine.figures().total("tgi_request_count") == 3


def test_openai_routes_word_their_errors_otherwise() -> None:
    engine = Emulated(max_model_len_tokens=100)
    for path, what in ((CHAT, {"messages": HELLO}), (COMPLETIONS, {"prompt": "a"})):
        head, said = engine.reply(path, {**what, "top_p": 1.0}, "POST")
        assert (head.status, json.loads(said)["error_type"]) == (422, "validation")
        head, said = engine.reply(path, {**what, "top_p": 1.0, "stream": True}, "POST")
        assert head.status == 200
        (event,) = events(said)
        assert event["error"]["http_status_code"] == 422
        assert said.endswith(b"data: [DONE]\n\n")
    assert isinstance(engine.ask(CHAT, {"messages": HELLO, "temperature": 0}), Ask)
    for early in ({"suffix": "x"}, {"prompt": list("abcde")}, {"prompt": ["a", "b"]}):
        head, said = engine.reply(COMPLETIONS, {"prompt": "a", "stream": True, **early}, "POST")
        assert head.status == 422
        check("ErrorResponse", json.loads(said))


def test_a_request_too_many_is_429_or_an_event_of_a_stream() -> None:
    engine = Emulated()
    assert engine.conf.max_in_flight == 128
    whole = engine.native("/generate").overloaded
    native = engine.native().overloaded
    chat = engine.ask(CHAT, {"messages": HELLO, "stream": True}).overloaded
    assert whole
    assert native
    assert chat
    head, said = read(whole())
    assert (head.status, json.loads(said)["error_type"]) == (429, "overloaded")
    assert read(native())[1] == (DATA / "native_error.sse").read_bytes()
    assert read(chat())[1] == (DATA / "openai_error.sse").read_bytes()
    assert engine.figures().total("tgi_request_failure") == 3
    assert engine.figures().total("tgi_request_input_length_sum") is None  # none has begun


def test_a_failure_is_424_or_an_event_of_a_stream() -> None:
    engine = Emulated()
    for path in ("/generate", STREAM):
        failed = engine.native(path).failed
        assert failed
        head, said = read(failed())
        assert head.status == (424 if path == "/generate" else 200)
        error = json.loads(said.removeprefix(b"data: "))
        assert error["error_type"] == "generation"
        assert error["error"].startswith("Request failed during generation: ")
    assert b'tgi_request_failure{err="generation"} 2\n' in engine.reply("/metrics")[1]


def test_what_it_says_of_itself() -> None:
    engine = Emulated("org/tiny", max_model_len_tokens=512, max_in_flight=9)
    for path in ("/health", "/ping", "/"):
        head, said = engine.reply(path)
        assert (head.status, said) == (200, b"")
    info = json.loads(engine.reply("/info")[1])
    check("Info", info)
    assert (info["max_total_tokens"], info["max_concurrent_requests"]) == (512, 9)
    models = engine.reply("/v1/models")[1]
    (model,) = json.loads(models)["data"]
    check("ModelInfo", model)
    assert is_emulated(models)
    adapter = TgiAdapter(EngineConf(name="tgi"), ModelConf(name="m"))
    identity = adapter.identity({"info": engine.reply("/info")[1], "models": models})
    assert (identity.model, identity.version) == ("org/tiny", "3.3.7")
    assert (identity.max_model_len_tokens, identity.is_emulated) == (512, True)
    assert engine.reply("/v2")[0].status == 404
    assert engine.reply("/generate")[0].status == 405
    assert engine.reply("/health", {}, "POST")[0].status == 405


def test_texts_are_cut_into_tokens() -> None:
    engine = Emulated()
    tokens = json.loads(engine.reply("/tokenize", {"inputs": "hello é"}, "POST")[1])
    check("TokenizeResponse", tokens)
    assert "".join(token["text"] for token in tokens) == "hello é"
    assert [(token["start"], token["stop"]) for token in tokens] == [(0, 4), (4, 7)]
    chat = json.loads(engine.reply("/chat_tokenize", {"messages": HELLO}, "POST")[1])
    check("ChatTokenizeResponse", chat)
    assert "hello" in chat["templated_text"]
    assert engine.native(inputs="hello é").prompt_tokens == len(tokens)


def test_a_series_appears_with_its_first_event() -> None:
    engine = Emulated()
    assert engine.reply("/metrics")[1] == b""
    asked = engine.native()
    figures = engine.figures()
    assert figures.total("tgi_request_count") == 1
    assert figures.total("tgi_queue_size") is None
    assert figures.total("tgi_request_success", "tgi_request_input_length_sum") is None
    written(asked)
    written(engine.ask(CHAT, {"messages": HELLO, "max_tokens": 5}))
    text = engine.reply("/metrics")[1]
    sample = known_sample(text)
    assert (sample.running, sample.waiting, sample.kv_usage_ratio) == (0, 0, None)
    assert (sample.prompt_tokens_total, sample.generation_tokens_total) == (2 + 4, 3 + 5)
    figures = Metrics(text)
    assert figures.total("tgi_request_count") == 1 + 2  # an OpenAI route counts twice
    assert figures.total("tgi_request_success") == 2
    assert figures.total("tgi_request_failure") is None
    for name in (
        *("duration", "validation_duration", "queue_duration", "inference_duration"),
        *("mean_time_per_token_duration", "max_new_tokens", "generated_tokens"),
    ):
        assert figures.total(f"tgi_request_{name}_count") == 2
        assert f'tgi_request_{name}_bucket{{le="+Inf"}} 2\n'.encode() in text
    assert text.count(b"tgi_request_duration_bucket") == 36
    assert text.count(b"tgi_request_input_length_bucket") == 101


def test_equal_beginnings_are_shared_except_where_all_of_a_prompt_is_read() -> None:
    engine = Emulated(prefix_cache=True)
    prompt = "x" * 400
    keys = engine.native(inputs=prompt).block_keys
    assert len(keys) == 6
    assert engine.native(inputs=prompt, adapter_id="fr").block_keys != keys
    stream = engine.ask(COMPLETIONS, {"prompt": prompt, "stream": True, "model": "tgi"})
    assert stream.block_keys == keys
    assert engine.ask(COMPLETIONS, {"prompt": prompt}).block_keys == ()
    assert Emulated().native(inputs=prompt).block_keys == ()


@pytest.mark.parametrize("route", Route)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_our_adapters_requests_are_what_the_description_allows_and_are_answered(
    route: Route, temperature: float
) -> None:
    adapter = TgiAdapter(EngineConf(name="tgi", route=route), ModelConf(name="m"))
    request = Request(
        index=0,
        prompt="hello",
        input_tokens=2,
        max_output_tokens=3,
        temperature=temperature,
        seed=5,
        lora="fr",
    )
    call = adapter.encode(request)
    body = json.loads(call.body)
    check("ChatRequest" if route is Route.CHAT else "GenerateRequest", body)
    engine = Emulated()
    asked = engine.ask(call.path, body)
    head, said = written(asked)
    decoder = adapter.decoder(head)
    chunks: list[Chunk] = [*decoder.feed(said), *decoder.end()]
    assert [c.text for c in chunks if c.text] == [" tok0", " tok1", " tok2"]
    assert [c.finish_reason for c in chunks if c.finish_reason] == ["length"]
    totals = [c.total_tokens for c in chunks if c.total_tokens is not None]
    assert totals[-1] == 3
    assert [c for c in chunks if c.kind is ChunkKind.ERROR] == []
    tokenize = adapter.probes["tokenize"]
    check("TokenizeResponse", json.loads(engine.reply(tokenize.path, tokenize.body, "POST")[1]))
