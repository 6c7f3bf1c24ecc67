"""The `text-generation` package, TGI's own client, reads our emulator of it.

Of its four calls the streamed chat is not tried: by its source, 0.7.0 wants a field in each delta
that TGI 3.3.7 does not send, and takes [DONE] for JSON.
"""

import sys
from collections.abc import Iterator

import pytest
from text_generation import Client
from text_generation.errors import GenerationError, OverloadedError, ValidationError
from text_generation.types import FinishReason, Message

from harness.testing.emulated import Emulated, emulated

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the emulator needs epoll"),
    # the client speaks the words of pydantic 1
    pytest.mark.filterwarnings(r"ignore:The `dict` method is deprecated"),
]

QUICK = ("--step-ms", "1", "--prefill-tokens-per-s", "1e6", "--served-names", "org/m")
ENDLESS = ("--natural-output-tokens", "1000000")
PATIENT_S = 30


def client(server: Emulated) -> Client:
    # without keep-alive: the client leaves its connections to the garbage collector
    return Client(server.base_url, headers={"connection": "close"}, timeout=PATIENT_S)


@pytest.fixture(scope="module")
def served() -> Iterator[Emulated]:
    with emulated(*QUICK, *ENDLESS, "--max-model-len-tokens", "200", engine="tgi") as server:
        yield server


def test_a_whole_answer(served: Emulated) -> None:
    answer = client(served).generate("hello", max_new_tokens=3)
    assert answer.generated_text == " tok0 tok1 tok2"
    assert answer.details.finish_reason is FinishReason.Length
    assert answer.details.generated_tokens == 3
    assert [token.text for token in answer.details.tokens] == [" tok0", " tok1", " tok2"]


def test_a_stream(served: Emulated) -> None:
    events = list(client(served).generate_stream("hello", max_new_tokens=4))
    assert [event.token.text for event in events] == [" tok0", " tok1", " tok2", " tok3"]
    assert [event.generated_text for event in events[:-1]] == [None] * 3
    assert events[-1].generated_text == " tok0 tok1 tok2 tok3"
    assert events[-1].details is not None
    assert events[-1].details.generated_tokens == 4


def test_a_stream_that_ends_by_itself() -> None:
    with emulated(*QUICK, "--natural-output-tokens", "1", engine="tgi") as server:
        (event,) = client(server).generate_stream("hello", max_new_tokens=4)
    assert event.token.special is True
    assert event.details is not None
    assert event.details.finish_reason is FinishReason.EndOfSequenceToken


def test_a_chat(served: Emulated) -> None:
    talk = [Message(role="user", content="hello")]
    answer = client(served).chat(talk, max_tokens=2, temperature=0)
    assert answer.choices[0].message.content == " tok0 tok1"
    assert answer.choices[0].finish_reason == "length"
    assert (answer.id, answer.model) == ("", "org/m")
    assert answer.usage["completion_tokens"] == 2


def test_an_invalid_request_is_its_validation_error(served: Emulated) -> None:
    message = r"`max_new_tokens` must be <= 200\. Given: 2 `inputs` tokens and 500"
    with pytest.raises(ValidationError, match=message):
        client(served).generate("hello", max_new_tokens=500)
    with pytest.raises(ValidationError, match=message):
        list(client(served).generate_stream("hello", max_new_tokens=500))


def test_a_failure_is_its_generation_error() -> None:
    with emulated(*QUICK, "--error-ratio", "1", engine="tgi") as server:
        with pytest.raises(GenerationError, match="Request failed during generation"):
            client(server).generate("hello")
        with pytest.raises(GenerationError, match="Request failed during generation"):
            list(client(server).generate_stream("hello"))


def test_a_request_too_many_is_its_overloaded_error() -> None:
    slow = ("--step-ms", "100", "--max-in-flight", "1", *ENDLESS)
    with emulated(*slow, engine="tgi") as server:
        first = client(server).generate_stream("hello", max_new_tokens=4000)
        assert next(first).token.text == " tok0"  # it is under way, for minutes
        with pytest.raises(OverloadedError, match="Model is overloaded"):
            client(server).generate("hello")
        with pytest.raises(OverloadedError, match="Model is overloaded"):
            list(client(server).generate_stream("hello"))
        first.close()


def test_its_own_limit_is_128() -> None:
    with emulated(*QUICK, engine="tgi") as server:
        assert server.knobs["max_in_flight"] == 128
