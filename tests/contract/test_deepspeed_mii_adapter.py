"""DeepSpeed-MII's gRPC stream: messages in, chunks out."""

from collections.abc import Sequence

import pytest

from adapters.deepspeed_mii import DeepSpeedMiiAdapter
from adapters.mii_wire import STREAM_PATH, Reply, read_request, reply_message
from harness.answer import Answer
from harness.config import EngineConf, ModelConf, Route
from harness.errors import ConfigError
from harness.types import (
    EngineIdentity,
    EngineSample,
    ErrorClass,
    Request,
    ResponseHead,
    TokensSource,
    Turn,
    Wire,
)

HEAD = ResponseHead(status=200)
ADAPTER = DeepSpeedMiiAdapter(EngineConf(name="deepspeed_mii"), ModelConf(name="m"))


def reply(text: str, tokens: int, finish: str = "none") -> bytes:
    return reply_message(
        Reply(text=text, finish_reason=finish, prompt_tokens=7, generated_tokens=tokens)
    )


STREAM = [reply(" Hello", 1), reply("", 2), reply(" é", 3), reply("", 3, "length")]


def answered(messages: Sequence[bytes], *, is_ended: bool = True) -> Answer:
    answer = Answer(ADAPTER.decoder(HEAD))
    for number, message in enumerate(messages):
        answer.feed(float(number), message)
    if is_ended:
        answer.end(float(len(messages)))
    return answer


def test_a_call_forces_greedy_tokens_of_a_length() -> None:
    request = Request(index=0, prompt="two words", input_tokens=2, max_output_tokens=9)
    call = ADAPTER.encode(request)
    assert (call.wire, call.path) == (Wire.GRPC, STREAM_PATH)
    asked = read_request(call.body)
    assert (asked.tokens, asked.prompt_tokens) == (9, 2)
    for word in (b"ignore_eos", b"do_sample", b"stream", b"max_new_tokens"):
        assert word in call.body
    assert ADAPTER.encode(request) == call


def test_a_session_is_sent_as_one_text() -> None:
    history = (Turn(role="user", text="first"), Turn(role="assistant", text="answer"))
    request = Request(
        index=0, prompt="second", input_tokens=1, max_output_tokens=1, history=history
    )
    body = ADAPTER.encode(request).body
    assert body.index(b"first") < body.index(b"answer") < body.index(b"second")


def test_every_message_is_a_token_and_the_last_one_ends_it() -> None:
    answer = answered(STREAM)
    assert answer.error is None
    assert answer.chunk_s == [0.0, 1.0, 2.0]  # the second holds a part of a character
    assert answer.chunk_tokens == [1, 1, 1]
    assert (answer.text, answer.finish_reason) == (" Hello é", "length")
    assert (answer.output_tokens, answer.prompt_tokens) == (3, 7)
    assert answer.tokens_source is TokensSource.USAGE


def test_a_stream_without_its_end_is_incomplete() -> None:
    assert answered(STREAM[:2]).error is ErrorClass.INCOMPLETE_STREAM
    assert answered(STREAM[:2], is_ended=False).error is None


@pytest.mark.parametrize("garbage", [b"\xff", b"\x0a\x05ab", b"", b"<html>"])
def test_garbage_is_an_error_chunk_and_nothing_follows_it(garbage: bytes) -> None:
    answer = answered([STREAM[0], garbage, STREAM[2]])
    assert answer.error is ErrorClass.STREAM_ERROR
    assert len(answer.chunk_s) == 1


def test_what_mii_does_not_have_is_said() -> None:
    with pytest.raises(ConfigError, match="engine=openai for its OpenAI server"):
        DeepSpeedMiiAdapter(EngineConf(name="x", route=Route.CHAT), ModelConf(name="m"))
    assert ADAPTER.engine_sample({}) == EngineSample()
    assert ADAPTER.identity({}) == EngineIdentity()
    assert ADAPTER.diagnose("anything") is None
    assert (ADAPTER.probes, ADAPTER.capabilities.metrics) == ({}, False)
