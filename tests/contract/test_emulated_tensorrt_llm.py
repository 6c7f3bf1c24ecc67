"""The emulated wires of TensorRT-LLM and Triton against golden bytes after their sources: the
same bytes where they can be the same, and the same chunks through the same adapter."""

import json
import re
from typing import Any

import pytest

from adapters.openai_compatible import EMULATOR
from adapters.tensorrt_llm import TensorRtLlmAdapter
from adapters.triton import TritonAdapter
from harness.adapter import Adapter
from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf, EngineConf, ModelConf, Route
from harness.emulate.model.figures import StepFigures
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.wires.tensorrt_llm.wire import TensorRtLlmWire
from harness.emulate.wires.triton.wire import TritonWire
from harness.emulate.wires.wire import Ask, Wire
from harness.testing import read_http
from harness.types import Chunk, EngineSample, Provenance, Request, ResponseHead

MODEL = ModelConf(name="m")
REQUEST = Request(index=0, prompt="hello", input_tokens=2, max_output_tokens=3)
STREAM = ResponseHead(status=200, headers={"content-type": "text/event-stream"})
GOLDEN_COMPLETIONS = (
    b'data: {"id":"ID","object":"text_completion","created":0,"model":"m","choices":[{"index":0,'
    b'"text":" tok0","token_ids":null,"logprobs":null,"finish_reason":null,"stop_reason":null,'
    b'"avg_decoded_tokens_per_iter":null}],"usage":null} \n\n'
    b'data: {"id":"ID","object":"text_completion","created":0,"model":"m","choices":[{"index":0,'
    b'"text":" tok1","token_ids":null,"logprobs":null,"finish_reason":null,"stop_reason":null,'
    b'"avg_decoded_tokens_per_iter":null}],"usage":null} \n\n'
    b'data: {"id":"ID","object":"text_completion","created":0,"model":"m","choices":[{"index":0,'
    b'"text":" tok2","token_ids":null,"logprobs":null,"finish_reason":"length","stop_reason":null,'
    b'"avg_decoded_tokens_per_iter":null}],"usage":null} \n\n'
    b'data: {"id":"ID","object":"text_completion","created":0,"model":"m","choices":[],"usage":'
    b'{"prompt_tokens":2,"total_tokens":5,"completion_tokens":3,"prompt_tokens_details":'
    b'{"cached_tokens":0}}} \n\ndata: [DONE]\n\n'
)
_CHAT = b'data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"m","choices":['
GOLDEN_CHAT = (
    _CHAT + b'{"index":0,"delta":{"role":"assistant"}}]} \n\n' + _CHAT + b'{"index":0,"delta":'
    b'{"content":" tok0"}}]} \n\n'
    + _CHAT
    + b'{"index":0,"delta":{"content":" tok1"}}]} \n\n'
    + _CHAT
    + b'{"index":0,"delta":{"content":" tok2"},"finish_reason":"length"}]} \n\n'
    + _CHAT
    + b'],"usage":{"prompt_tokens":4,"total_tokens":7,"completion_tokens":3,'
    b'"prompt_tokens_details":{"cached_tokens":0}}} \n\ndata: [DONE]\n\n'
)
GOLDEN_TRITON = b"".join(
    b'data: {"model_name":"ensemble","model_version":"1","num_input_tokens":2,'
    b'"num_output_tokens":1,"sequence_end":false,"sequence_id":0,"sequence_start":false,'
    b'"text_output":" tok%d"}\n\n' % k
    for k in range(3)
)


class Engine:
    """A wire and its engine, without a socket."""

    def __init__(self, wire: type[Wire], **knobs: Any) -> None:
        self.conf = EmulateConf(**knobs)
        self.wire = wire(self.conf, ("m",))
        self.player = Player(self.conf, Pace(1.0))

    def respond(self, path: str, body: object = None, method: str = "POST") -> bytes | Ask:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = HttpRequest(method=method, path=path, body=data)
        return self.wire.respond(request, 1, self.player)

    def get(self, path: str) -> tuple[int, bytes]:
        return whole(self.respond(path, method="GET"))

    def post(self, path: str, body: object) -> tuple[int, Any]:
        status, answer = whole(self.respond(path, body))
        return status, json.loads(answer)

    def asked(self, adapter: Adapter, request: Request = REQUEST) -> Ask:
        call = adapter.encode(request)
        asked = self.respond(call.path, call.body)
        assert isinstance(asked, Ask), asked
        return asked


def whole(answer: bytes | Ask) -> tuple[int, bytes]:
    assert isinstance(answer, bytes)
    head, pieces = read_http(answer)
    return head.status, b"".join(pieces)


def body_of(asked: Ask) -> bytes:
    last = asked.output_tokens - 1
    middle = b"".join(asked.answer.token(k) for k in range(last))
    head, pieces = read_http(asked.answer.head + middle + asked.answer.last(last, 0))
    assert head.status == 200
    return b"".join(pieces)


def chunks(adapter: Adapter, body: bytes) -> list[Chunk]:
    decoder = adapter.decoder(STREAM)
    return [*decoder.feed(body), *decoder.end()]


def nameless(body: bytes) -> bytes:
    named = re.sub(rb'"id":"[^"]*"', b'"id":"ID"', body)
    return re.sub(rb'"created":\d+', b'"created":0', named)


@pytest.mark.parametrize(
    ("route", "golden"), [(Route.COMPLETIONS, GOLDEN_COMPLETIONS), (Route.CHAT, GOLDEN_CHAT)]
)
def test_trtllm_serve_streams_the_golden_bytes(route: Route, golden: bytes) -> None:
    adapter = TensorRtLlmAdapter(EngineConf(name="tensorrt_llm", route=route), MODEL)
    body = nameless(body_of(Engine(TensorRtLlmWire).asked(adapter)))
    assert body == golden
    found = chunks(adapter, body)
    assert found == chunks(adapter, golden)
    assert [chunk.text for chunk in found if chunk.text] == [" tok0", " tok1", " tok2"]
    assert [chunk.total_tokens for chunk in found if chunk.total_tokens] == [3]


def test_triton_streams_the_golden_bytes() -> None:
    adapter = TritonAdapter(EngineConf(name="triton"), MODEL)
    body = body_of(Engine(TritonWire).asked(adapter))
    assert body == GOLDEN_TRITON
    found = chunks(adapter, body)
    assert [(one.text, one.total_tokens) for one in found] == [
        (" tok0", 1),
        (" tok1", 2),
        (" tok2", 3),
    ]


def test_usage_comes_unless_it_is_refused() -> None:
    engine = Engine(TensorRtLlmWire)
    body = {"model": "any", "prompt": "hello", "max_tokens": 2, "stream": True, "ignore_eos": True}

    def events(**more: Any) -> bytes:
        asked = engine.respond("/v1/completions", {**body, **more})
        assert isinstance(asked, Ask)
        return body_of(asked)

    assert b'"completion_tokens":2' in events()
    assert b'"completion_tokens":2' in events(stream_options={})
    assert b"completion_tokens" not in events(stream_options={"include_usage": False})
    assert b'"model":"any"' in events()


def test_whole_answers() -> None:
    body = {"model": "m", "max_tokens": 2, "ignore_eos": True, "stream": False}
    for path, prompt, keys in (
        ("/v1/completions", {"prompt": "hello"}, {"context_logits", "token_ids"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, {"message"}),
    ):
        asked = Engine(TensorRtLlmWire).respond(path, {**body, **prompt})
        assert isinstance(asked, Ask)
        choice = json.loads(body_of(asked))["choices"][0]
        assert keys <= set(choice)
        assert choice["finish_reason"] == "length"
    triton = Engine(TritonWire).respond(
        "/v2/models/ensemble/generate", {"text_input": "hello", "max_tokens": 2, "min_tokens": 2}
    )
    assert isinstance(triton, Ask)
    assert json.loads(body_of(triton))["text_output"] == " tok0 tok1"


def test_without_a_length_the_context_is_filled() -> None:
    asked = Engine(TensorRtLlmWire, max_model_len_tokens=100).respond(
        "/v1/completions", {"model": "m", "prompt": "hello", "ignore_eos": True}
    )
    assert isinstance(asked, Ask)
    assert asked.output_tokens == 100 - 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "JSON decode error"),
        ({"prompt": "a"}, "'missing'"),
        ({"model": "m", "prompt": "a", "nonsense": 1}, "extra_forbidden"),
        ({"model": "m", "prompt": "a", "messages": []}, "extra_forbidden"),
        ({"model": "m", "prompt": "a", "suffix": "b"}, "suffix"),
        ({"model": "m", "prompt": "a", "stream_options": {}}, "stream=True"),
        ({"model": "m", "prompt": "a", "max_tokens": 99999}, "maximum context length"),
    ],
)
def test_every_refusal_is_a_flat_400(body: object, words: str) -> None:
    status, error = Engine(TensorRtLlmWire).post("/v1/completions", body)
    assert status == 400
    assert words in error.pop("message")
    assert error == {"object": "error", "type": "BadRequestError", "param": None, "code": 400}
    failed, broken = whole(Engine(TensorRtLlmWire).wire.failed())
    assert (failed, json.loads(broken)["object"]) == (400, "error")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "JSON"),
        ({"max_tokens": 3}, "text_input"),
        ({"text_input": "a"}, "max_tokens"),
        ({"text_input": "a", "max_tokens": 99999}, "maximum context length"),
    ],
)
def test_a_refusal_of_triton_is_one_sentence(body: object, words: str) -> None:
    status, error = Engine(TritonWire).post("/v2/models/ensemble/generate_stream", body)
    assert (status, list(error)) == (400, ["error"])
    assert words in error["error"]


def test_what_the_servers_tell() -> None:
    engine = Engine(TensorRtLlmWire)
    adapter = TensorRtLlmAdapter(EngineConf(name="tensorrt_llm"), MODEL)
    assert engine.get("/health") == (200, b"")
    bodies = {name: engine.get(adapter.probes[name].path)[1] for name in ("version", "models")}
    identity = adapter.identity(bodies)
    assert (identity.version, identity.model, identity.is_emulated) == ("1.2.1", "m", True)
    assert engine.get("/prometheus/metrics")[0] == 404
    triton = Engine(TritonWire, kv_blocks=100, max_model_len_tokens=512)
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/ensemble/ready"):
        assert triton.get(path) == (200, b"")
    assert triton.get("/v2/models/other/ready")[0] == 400
    assert triton.get("/v3")[0] == 404
    told = TritonAdapter(EngineConf(name="triton"), MODEL).identity(
        {"server": triton.get("/v2")[1], "metrics": triton.get("/metrics")[1]}
    )
    assert (told.is_emulated, told.kv_capacity_tokens) == (True, 1600)
    assert EMULATOR.encode() in triton.get("/v2")[1]


def test_the_iterations_are_drained_by_reading_them() -> None:
    engine = Engine(TensorRtLlmWire, kv_blocks=100, max_model_len_tokens=512, slots=2)
    adapter = TensorRtLlmAdapter(EngineConf(name="tensorrt_llm"), MODEL)
    assert json.loads(engine.get("/metrics")[1]) == []
    figures = {"took_s": 0.02, "admitted": 1, "prefilling": 1, "decoding": 1}
    for number, used in ((1, 0.1), (2, 0.25)):
        engine.player._model.steps.append(
            StepFigures(
                number=number,
                end_s=number * 0.02,
                running=2,
                waiting=3,
                kv_usage_ratio=used,
                prefill_tokens=10,
                completed=0,
                **figures,  # type: ignore[arg-type]
            )
        )
    body = engine.get("/metrics")[1]
    first, second = json.loads(body)
    assert (first["iter"], second["iter"], second["iterLatencyMS"]) == (1, 2, 20.0)
    assert second["inflightBatchingStats"] == {
        "numScheduledRequests": 2,
        "numContextRequests": 1,
        "numGenRequests": 1,
        "numCtxTokens": 10,
    }
    sample = adapter.engine_sample({"metrics": body})
    assert (sample.running, sample.waiting, sample.kv_usage_ratio) == (2, 3, 0.25)
    assert sample.kv_provenance is Provenance.DERIVED
    assert adapter.identity({"metrics": body}).kv_capacity_tokens == 1600
    again = engine.get("/metrics")[1]
    assert again == b"[]"
    assert adapter.engine_sample({"metrics": again}) == EngineSample()
