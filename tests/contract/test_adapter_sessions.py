"""History, LoRA adapters, speculation and emulators through every adapter that knows them."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.llamacpp import LlamaCppAdapter
from adapters.metrics import known_sample
from adapters.openai import OpenAIAdapter
from adapters.openai_compatible import OpenAICompatible
from adapters.session import messages, plain_text
from adapters.tgi import TgiAdapter
from harness.adapter import ServeContext
from harness.answer import Answer
from harness.config import EngineConf, ModelConf, Route, SpeculationConf
from harness.errors import ConfigError
from harness.testing import read_http
from harness.types import Request, Turn

WIRE = Path(__file__).parent.parent / "data" / "wire"
MODEL = ModelConf(name="m", served_name="served")
ADAPTERS: dict[str, type[OpenAICompatible]] = {
    "openai": OpenAIAdapter,
    "llamacpp": LlamaCppAdapter,
    "tgi": TgiAdapter,
}
LORA = {"fr": "/lora/french.gguf", "de": "/lora/german.gguf"}
EMULATED = b'{"object":"list","data":[{"id":"x","owned_by":"bakeoff-emulator"}]}'
REAL = b'{"object":"list","data":[{"id":"x","owned_by":"vllm"}]}'


def request(prompt: str = "Third?", *said: tuple[str, str], lora: str | None = None) -> Request:
    history = tuple(Turn(role=role, text=text) for role, text in said)
    return Request(
        index=0, prompt=prompt, input_tokens=1, max_output_tokens=8, history=history, lora=lora
    )


def body_of(name: str, asked: Request, **settings: Any) -> dict[str, Any]:
    adapter = ADAPTERS[name](EngineConf(name=name, **settings), MODEL)
    body = json.loads(adapter.encode(asked).body)
    assert isinstance(body, dict)
    return body


SAID = (
    ("system", "Be brief."),
    ("user", "First?"),
    ("assistant", " One."),
    ("user", "Second?"),
    ("assistant", " Two."),
)


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_chat_route_gets_the_history_as_messages(name: str) -> None:
    body = body_of(name, request("Third?", *SAID), route=Route.CHAT)
    assert [(turn["role"], turn["content"]) for turn in body["messages"]] == [
        *SAID,
        ("user", "Third?"),
    ]


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_route_without_roles_gets_the_history_as_text(name: str) -> None:
    body = body_of(name, request("Third?", *SAID))
    text = "Be brief.\nFirst? One.\nSecond? Two.\nThird?"
    assert body["inputs" if name == "tgi" else "prompt"] == text


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_first_turn_is_its_prompt_alone(name: str) -> None:
    assert body_of(name, request())["inputs" if name == "tgi" else "prompt"] == "Third?"
    assert messages(request()) == [{"role": "user", "content": "Third?"}]


def test_every_turn_begins_with_the_text_of_the_turn_before_and_its_answer() -> None:
    said: tuple[tuple[str, str], ...] = ()
    before = ""
    for number in range(4):
        text = plain_text(request(f"Question {number}?", *said))
        assert text.startswith(before)
        assert len(text) > len(before)
        answer = f" Answer {number}\n"
        before = text + answer
        said = (*said, ("user", f"Question {number}?"), ("assistant", answer))


@pytest.mark.parametrize(("name", "plain"), [("openai", "served"), ("tgi", "served")])
def test_an_adapter_is_chosen_by_the_name_of_the_model(name: str, plain: str) -> None:
    for asked, model in ((request(), plain), (request(lora="fr"), "fr")):
        assert body_of(name, asked, route=Route.CHAT)["model"] == model


def test_tgi_names_the_adapter_in_the_parameters_of_its_own_route() -> None:
    assert body_of("tgi", request(lora="fr"))["parameters"]["adapter_id"] == "fr"
    assert "adapter_id" not in body_of("tgi", request())["parameters"]


@pytest.mark.parametrize("route", Route)
def test_llamacpp_scales_every_adapter_by_its_place(route: Route) -> None:
    of = {
        name: body_of("llamacpp", request(lora=name), lora=LORA, route=route)["lora"]
        for name in (None, "fr", "de")
    }
    assert of[None] == [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 0.0}]
    assert of["fr"] == [{"id": 0, "scale": 1.0}, {"id": 1, "scale": 0.0}]
    assert of["de"] == [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 1.0}]
    assert "lora" not in body_of("llamacpp", request(), route=route)


def test_llamacpp_refuses_an_adapter_that_is_not_loaded() -> None:
    message = r"scenario\.lora=it: is not loaded; engine\.lora has: fr, de"
    with pytest.raises(ConfigError, match=message):
        body_of("llamacpp", request(lora="it"), lora=LORA)
    with pytest.raises(ConfigError, match=r"engine\.lora has: none"):
        body_of("llamacpp", request(lora="it"))


def test_llamacpp_loads_the_adapters_in_their_order() -> None:
    drafts = SpeculationConf(method="ngram")
    conf = EngineConf(name="llamacpp", lora=LORA, speculation=drafts)
    ctx = ServeContext(port=1, python=Path("/env/python"), model_path=Path("/m.gguf"))
    argv = LlamaCppAdapter(conf, MODEL).serve(conf, MODEL, ctx).argv
    place = argv.index("--lora")
    assert argv[place - 2 :] == (
        *("--spec-type", "ngram-simple"),
        *("--lora", "/lora/french.gguf", "--lora", "/lora/german.gguf"),
    )


def test_llamacpp_tells_how_much_of_the_drafts_was_accepted() -> None:
    name = "llamacpp-b11434-completions-stream-speculation"
    head, pieces = read_http((WIRE / f"{name}.http").read_bytes())
    answer = Answer(LlamaCppAdapter(EngineConf(name="llamacpp"), MODEL).decoder(head))
    for place, piece in enumerate(pieces):
        answer.feed(float(place), piece)
    answer.end(float(len(pieces)))
    assert (answer.draft_tokens, answer.accepted_tokens, answer.output_tokens) == (21, 17, 24)


@pytest.mark.parametrize("timings", ["x", None, [], {"draft_n": "1", "draft_n_accepted": 1}])
def test_timings_of_another_shape_are_no_drafts(timings: Any) -> None:
    event = {"choices": [], "usage": {"completion_tokens": 3}, "timings": timings}
    head, _ = read_http(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    answer = Answer(LlamaCppAdapter(EngineConf(name="llamacpp"), MODEL).decoder(head))
    answer.feed(0.0, b"data: " + json.dumps(event).encode() + b"\n\n")
    assert (answer.error, answer.output_tokens) == (None, 3)
    assert (answer.draft_tokens, answer.accepted_tokens) == (None, None)


def test_draft_counters_are_read_from_the_metrics() -> None:
    vllm = (
        b"vllm:spec_decode_num_draft_tokens_total 30\nvllm:spec_decode_num_accepted_tokens_total 12"
    )
    assert known_sample(vllm).draft_tokens_total == 30
    assert known_sample(vllm).accepted_tokens_total == 12
    assert known_sample(b"vllm:num_requests_running 1").draft_tokens_total is None
    llamacpp = LlamaCppAdapter(EngineConf(name="llamacpp"), MODEL)
    body = vllm.replace(b"vllm", b"llamacpp")
    sample = llamacpp.engine_sample({"metrics": body})
    assert (sample.draft_tokens_total, sample.accepted_tokens_total) == (30, 12)


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_emulator_is_known_by_the_owner_of_its_models(name: str) -> None:
    adapter = ADAPTERS[name](EngineConf(name=name), MODEL)
    assert "models" in adapter.identity_probes
    assert adapter.probes["models"].path == "/v1/models"
    assert adapter.identity({"models": EMULATED}).is_emulated
    for body in (REAL, b"", b"[]", b'{"data": 3}', b'{"data": [4, {"owned_by": null}]}'):
        assert not adapter.identity({"models": body}).is_emulated
