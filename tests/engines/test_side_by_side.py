"""A real engine and its emulator are asked the same: the same events, the same refusals.

What is compared is the form: statuses, content types, the order of events, their keys and the
kinds of their values. Texts and counts are the model's own.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import pytest

from harness.engine.probe import Answer, Endpoint, call
from harness.testing.emulated import emulated
from harness.types import HttpCall
from tests.engines.conftest import Start

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

JSON = {"content-type": "application/json"}
FORCED = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
PROMPT = {"prompt": "The capital of France is"}
MESSAGES = {"messages": [{"role": "user", "content": "Name a river."}]}
ENGINES = ("vllm_cpu", "llamacpp")


def post(path: str, body: object) -> HttpCall:
    return HttpCall(path=path, headers=JSON, body=json.dumps(body).encode())


def asked(name: str) -> dict[str, HttpCall]:
    """The requests, by what they show. `name`: of the model."""
    completions, chat = "/v1/completions", "/v1/chat/completions"
    base = {"model": name, **FORCED}
    return {
        "completion": post(completions, {**base, **PROMPT, **STREAM}),
        "completion without usage": post(completions, {**base, **PROMPT, "stream": True}),
        "chat": post(chat, {**base, **MESSAGES, **STREAM}),
        "whole completion": post(completions, {**base, **PROMPT}),
        "whole chat": post(chat, {**base, **MESSAGES}),
        "too long": post(completions, {**base, "prompt": "word " * 3000}),
        "no JSON": HttpCall(path=completions, headers=JSON, body=b"{"),
        "health": HttpCall(method="GET", path="/health"),
        "models": HttpCall(method="GET", path="/v1/models"),
        "no such route": HttpCall(method="GET", path="/nowhere"),
    }


class Form(NamedTuple):
    """What an answer looks like."""

    status: int
    content_type: str
    events: tuple[Any, ...]


def kind(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: kind(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [kind(value[0])] if value else []
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__
    return "number"


def payloads(body: bytes) -> Iterator[Any]:
    """Each event, or the body, decoded; [DONE] and plain text as they are."""
    text = body.decode()
    parts = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    for part in parts or ([text] if text.strip() else []):
        try:
            yield kind(json.loads(part))
        except ValueError:
            yield part if part == "[DONE]" else "text"


def form(answer: Answer) -> Form:
    """Events that are alike one after another count as one: how many tokens share one differs."""
    content_type = answer.head.headers.get("content-type", "").partition(";")[0]
    events = tuple(event for event, _ in groupby(payloads(answer.body)))
    return Form(answer.head.status, content_type, events)


def forms(endpoint: Endpoint, name: str) -> dict[str, Form]:
    found = {}
    for what, request in asked(name).items():
        answer = call(endpoint, request, 120.0)
        assert isinstance(answer, Answer), (what, answer)
        found[what] = form(answer)
    return found


@pytest.fixture(scope="module", params=ENGINES)
def pair(request: pytest.FixtureRequest, start: Start) -> tuple[dict[str, Form], dict[str, Form]]:
    """The forms of the real engine's answers and of its emulator's."""
    engine = request.param
    with start(engine) as real:
        of_real = forms(real.endpoint, real.name)
        sample = [real.adapter.probes[name] for name in real.adapter.sample_probes]
        bodies = [call(real.endpoint, probe, 10.0) for probe in sample]
        assert all(isinstance(body, Answer) and body.is_ok for body in bodies)
    options = ("--served-names", real.name, "--max-model-len-tokens", "512", "--slots", "4")
    with emulated(*options, "--step-ms", "1", engine=engine) as stand_in:
        of_emulator = forms(Endpoint(stand_in.base_url), real.name)
    return of_real, of_emulator


@pytest.mark.parametrize("what", asked("x"))
def test_the_emulator_answers_in_the_form_of_the_engine(
    pair: tuple[dict[str, Form], dict[str, Form]], what: str
) -> None:
    real, emulator = (forms[what] for forms in pair)
    assert (emulator.status, emulator.content_type) == (real.status, real.content_type)
    assert list(emulator.events) == list(real.events)
