import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from adapters.openai import OpenAIAdapter
from harness.config import EngineConf, ModelConf, ProbeConf
from harness.engine.probe import Endpoint
from harness.errors import ConfigError
from harness.run.determinism import ask_again_and_again
from harness.testing.emulated import emulated
from harness.testing.scripted import Script, ScriptedServer
from harness.types import Determinism, Request

PATH = "/v1/completions"
REQUEST = Request(index=0, prompt="one", input_tokens=1, max_output_tokens=4)
ADAPTER = OpenAIAdapter(EngineConf(name="openai", args={"ignore_eos": True}), ModelConf(name="m"))


def whole(body: Mapping[str, Any], status: int = 200) -> Script:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
    return (f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data,)


@pytest.fixture(scope="module")
def failing() -> Iterator[str]:
    """A server that answers nothing but an error."""
    with ScriptedServer({PATH: whole({"error": {"message": "no"}}, 500)}) as server:
        yield f"http://127.0.0.1:{server.port}"


def test_an_engine_that_repeats_itself_has_one_text() -> None:
    with emulated("--speed", "50") as server:
        found = ask_again_and_again(ADAPTER, Endpoint(server.base_url), REQUEST, 3)
        asked = server.stop()["requests"]
    expected = Determinism(requests=3, output_tokens=4, alone=1, crowd=1, together=1)
    assert found == expected
    assert asked == {"length": 6}


def test_answers_that_fail_are_no_text(failing: str) -> None:
    found = ask_again_and_again(ADAPTER, Endpoint(failing), REQUEST, 2)
    assert (found.alone, found.crowd, found.together, found.failed) == (0, 0, 0, 4)


def test_different_texts_are_counted_in_each_way_and_over_both() -> None:
    texts = iter(["a", "a", "b", "c", "a", "b"])

    class Other(OpenAIAdapter):
        """Every request asks for another path, whose answer is another text."""

        def encode(self, request: Request) -> Any:
            return replace(super().encode(request), path=f"/{next(texts)}")

    def script(text: str) -> Script:
        choice = {"text": text, "finish_reason": "length"}
        return whole({"choices": [choice], "usage": {"completion_tokens": 1}})

    adapter = Other(EngineConf(name="openai"), ModelConf(name="m"))
    with ScriptedServer({f"/{one}": script(one) for one in "abc"}) as server:
        url = f"http://127.0.0.1:{server.port}"
        found = ask_again_and_again(adapter, Endpoint(url), REQUEST, 3)
    assert (found.alone, found.crowd, found.together, found.failed) == (2, 3, 3, 0)


def test_one_answer_shows_nothing() -> None:
    with pytest.raises(ConfigError, match=r"determinism_requests=1: must be 0, or at least 2"):
        ProbeConf(determinism_requests=1)
