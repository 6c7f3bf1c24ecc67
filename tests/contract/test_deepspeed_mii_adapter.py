"""DeepSpeed-MII's gRPC stream: messages in, chunks out."""

import json
from collections.abc import Sequence

import pytest

from adapters.deepspeed_mii import DeepSpeedMiiAdapter
from adapters.mii_wire import STREAM_PATH, Reply, read_query, read_request, reply_message
from harness.answer import Answer
from harness.config import EngineConf, ModelConf, Route
from harness.errors import ConfigError
from harness.testing.suite import AdapterSuite
from harness.types import (
    EngineIdentity,
    EngineSample,
    ErrorClass,
    Provenance,
    Request,
    ResponseHead,
    TokensSource,
    Turn,
    Wire,
)

HEAD = ResponseHead(status=200)
ADAPTER = DeepSpeedMiiAdapter(EngineConf(name="deepspeed_mii"), ModelConf(name="m"))
CHAT_CONF = EngineConf(name="deepspeed_mii", route=Route.CHAT)
CHAT = DeepSpeedMiiAdapter(CHAT_CONF, ModelConf(name="m"))


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


def test_a_sequence_that_begins_anew_goes_on_counting() -> None:
    def message(text: str, prompt: int, tokens: int, finish: str = "none") -> bytes:
        return reply_message(
            Reply(text=text, finish_reason=finish, prompt_tokens=prompt, generated_tokens=tokens)
        )

    # after two tokens its blocks were taken: they are part of the prompt that is computed again
    answer = answered(
        [message(" a", 7, 1), message(" b", 7, 2), message(" c", 9, 1), message("", 9, 1, "length")]
    )
    assert (answer.error, answer.text) == (None, " a b c")
    assert (answer.output_tokens, answer.prompt_tokens) == (3, 7)
    assert answer.chunk_tokens == [1, 1, 1]


def test_a_sampled_call_names_its_temperature_and_no_filter() -> None:
    request = Request(
        index=0, prompt="p", input_tokens=1, max_output_tokens=3, temperature=0.5, seed=7
    )
    kwargs = read_query(ADAPTER.encode(request).body).kwargs
    assert kwargs == {
        "stream": True,
        "max_new_tokens": 3,
        "ignore_eos": True,
        "do_sample": True,
        "temperature": 0.5,
        "top_p": 1.0,
    }


def test_what_mii_does_not_have_is_said() -> None:
    assert ADAPTER.engine_sample({}) == EngineSample()
    assert ADAPTER.identity({}) == EngineIdentity()
    assert ADAPTER.capabilities.metrics is False
    assert ADAPTER.capabilities.kv_metric is Provenance.NOT_EXPOSED
    assert (ADAPTER.sample_probes, "health" in ADAPTER.probes) == ((), False)
    request = Request(index=0, prompt="p", input_tokens=1, max_output_tokens=1, lora="sql")
    for adapter in (ADAPTER, CHAT):
        with pytest.raises(ConfigError, match=r"scenario\.lora=sql: .*has no LoRA adapters"):
            adapter.encode(request)


def event(delta: str, finish: str = "null") -> bytes:
    choice = f'{{"index":0,"delta":{{{delta}}},"finish_reason":{finish}}}'
    return f'data: {{"id":"chatcmpl-x","choices":[{choice}],"model":"m"}}\n\n'.encode()


class TestOpenAiServer(AdapterSuite):
    """Its stream in the form of mii/entrypoints/openai_api_server.py 0.3.3; not recorded."""

    adapter = CHAT
    body = (
        event('"role":"assistant"')
        + event('"content":" Hello"')
        + event('"content":""')
        + event('"content":" é"')
        + event('"content":""', '"length"')
        + b"data: [DONE]\n\n"
    )
    output_tokens = prompt_tokens = None
    token_chunks = 2  # the one between holds a part of a character
    text, finish_reason = " Hello é", "length"


def test_the_routes_differ_in_what_they_can_do() -> None:
    grpc, chat = ADAPTER.capabilities, CHAT.capabilities
    assert (grpc.forced_length, grpc.usage_in_stream, grpc.wire) == (True, True, Wire.GRPC)
    assert (chat.forced_length, chat.usage_in_stream, chat.wire) == (False, False, Wire.HTTP)
    assert CHAT.probes["health"].path == "/health"


@pytest.mark.parametrize(
    ("temperature", "sampling"),
    [
        (0.0, {"temperature": 1.0, "top_p": 1.0, "top_k": 1}),
        (0.5, {"temperature": 0.5, "top_p": 1.0}),
    ],
)
def test_a_chat_call_says_all_that_its_defaults_would(
    temperature: float, sampling: dict[str, float]
) -> None:
    request = Request(
        index=0, prompt="hi", input_tokens=1, max_output_tokens=8, temperature=temperature, seed=7
    )
    call = CHAT.encode(request)
    assert (call.path, call.wire) == ("/v1/chat/completions", Wire.HTTP)
    assert json.loads(call.body) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8,
        "stream": True,
        **sampling,
    }


def test_a_model_of_a_hub_goes_by_its_name_there() -> None:
    request = Request(index=0, prompt="hi", input_tokens=1, max_output_tokens=8)
    for model, name in (
        (ModelConf(name="m", repo="org/big"), "org/big"),
        (ModelConf(name="m", repo="org/big", served_name="mine"), "mine"),
        (ModelConf(name="m", repo="org/big", path="/big"), "m"),
    ):
        call = DeepSpeedMiiAdapter(CHAT_CONF, model).encode(request)
        assert json.loads(call.body)["model"] == name
