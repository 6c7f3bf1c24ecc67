"""Captures of real servers through the adapters, and the contract suite on each stream."""

import re
from pathlib import Path

import pytest

from adapters.llamacpp import LlamaCppAdapter
from adapters.openai import OpenAIAdapter
from adapters.tgi import TgiAdapter
from harness.answer import Answer
from harness.config import EngineConf, ModelConf, Route
from harness.testing import AdapterSuite, read_http
from harness.types import ErrorClass, Provenance

WIRE = Path(__file__).parent.parent / "data" / "wire"
LLAMACPP = LlamaCppAdapter(EngineConf(name="llamacpp"), ModelConf(name="smol"))
VLLM = OpenAIAdapter(EngineConf(name="openai"), ModelConf(name="tiny"))
STREAMS = [
    path.stem
    for path in sorted(WIRE.glob("*stream*.http"))
    if not re.search("nonstream|^transformers", path.stem)  # test_transformers_wire.py
]


def body_of(name: str) -> bytes:
    return b"".join(read_http((WIRE / f"{name}.http").read_bytes())[1])


def answer_of(name: str) -> Answer:
    head, pieces = read_http((WIRE / f"{name}.http").read_bytes())
    answer = Answer((LLAMACPP if name.startswith("llamacpp") else VLLM).decoder(head))
    for i, piece in enumerate(pieces):
        answer.feed(float(i), piece)
    answer.end(float(len(pieces)))
    return answer


class TestLlamaCppCompletions(AdapterSuite):
    adapter = LLAMACPP
    body = body_of("llamacpp-b11434-completions-stream-usage")
    output_tokens, prompt_tokens, token_chunks = 4, 5, 4
    text, finish_reason = " Paris.\n\n", "length"


class TestLlamaCppCompletionsPlain(AdapterSuite):
    adapter = LLAMACPP
    body = body_of("llamacpp-b11434-completions-stream-plain")
    output_tokens, prompt_tokens, token_chunks = 4, 5, 4
    text, finish_reason = " Paris.\n\n", "length"


class TestLlamaCppSpeculation(AdapterSuite):
    adapter = LLAMACPP
    body = body_of("llamacpp-b11434-completions-stream-speculation")
    output_tokens, prompt_tokens, token_chunks = 24, 74, 24
    text = (
        " grape lemon lime mango melon kiwi peach cherry berry date nut olive onion corn "
        "bean pea.\n\nThe list is a"
    )
    finish_reason = "length"


class TestLlamaCppChat(AdapterSuite):
    adapter = LlamaCppAdapter(EngineConf(name="llamacpp", route=Route.CHAT), ModelConf(name="m"))
    body = body_of("llamacpp-b11434-chat-stream-usage")
    output_tokens, prompt_tokens, token_chunks = 4, 32, 4
    text, finish_reason = "I'm glad you", "length"


class TestVllmCompletions(AdapterSuite):
    adapter = VLLM
    body = body_of("vllm-0.32.0-completions-stream-usage")
    output_tokens, prompt_tokens, token_chunks = 4, 10, 4
    text, finish_reason = "ctions isctions is", "length"


class TestVllmCompletionsPlain(AdapterSuite):
    adapter = VLLM
    body = body_of("vllm-0.32.0-completions-stream-plain")
    output_tokens, prompt_tokens, token_chunks = None, None, 4
    text, finish_reason = "ctions isctions is", "length"


class TestVllmContinuousUsage(AdapterSuite):
    adapter = VLLM
    body = body_of("vllm-0.32.0-completions-stream-ids-continuous")
    output_tokens, prompt_tokens, token_chunks = 3, 3, 3
    text, finish_reason = " adapter$ adapter", "length"


class TestVllmChat(AdapterSuite):
    adapter = OpenAIAdapter(EngineConf(name="openai", route=Route.CHAT), ModelConf(name="tiny"))
    body = body_of("vllm-0.32.0-chat-stream-usage")
    output_tokens, prompt_tokens, token_chunks = 4, 13, 4
    text, finish_reason = " these\n these\n", "length"


class TestTgiNative(AdapterSuite):
    adapter = TgiAdapter(EngineConf(name="tgi"), ModelConf(name="m"))
    body = (
        b'data: {"index":1,"token":{"id":1,"text":"Hel","logprob":-0.1,"special":false},'
        b'"generated_text":null,"details":null}\n\n:\n\n'
        b'data:{"index":2,"token":{"id":2,"text":"lo","logprob":-0.1,"special":false},'
        b'"generated_text":null,"details":null}\n\n'
        b'data:{"index":3,"token":{"id":3,"text":"</s>","logprob":-0.1,"special":true},'
        b'"generated_text":"Hello","details":{"finish_reason":"eos_token","generated_tokens":3,'
        b'"seed":null,"input_length":7}}\n\n'
    )
    output_tokens, prompt_tokens, token_chunks = 3, 7, 3
    text, finish_reason = "Hello", "eos_token"


@pytest.mark.parametrize("name", STREAMS)
def test_every_capture_of_a_stream_is_read_without_raising(name: str) -> None:
    answer = answer_of(name)
    assert answer.stream_end_s is not None


def test_a_tokens_own_read_is_its_stamp() -> None:
    assert len(STREAMS) == 11
    answer = answer_of("llamacpp-b11434-completions-stream-usage")
    assert answer.chunk_s == [0, 1, 2, 3]
    assert (answer.reads, answer.merged_reads, answer.stream_end_s) == (6, 0, 5)
    assert answer.cached_tokens == 0


def test_reads_with_several_tokens_are_counted() -> None:
    answer = Answer(VLLM.decoder(read_http((WIRE / f"{STREAMS[-1]}.http").read_bytes())[0]))
    answer.feed(1.0, body_of("vllm-0.32.0-completions-stream-usage"))
    assert (answer.reads, answer.merged_reads, len(answer.chunk_s)) == (1, 1, 4)


def test_continuous_usage_gives_the_tokens_of_each_chunk() -> None:
    answer = answer_of("vllm-0.32.0-completions-stream-ids-continuous")
    assert answer.chunk_tokens == [1, 1, 1]


def test_data_null_opens_a_stream_of_several_prompts() -> None:
    answer = answer_of("llamacpp-b11434-multiprompt-stream")
    assert answer.error is None
    assert (len(answer.chunk_s), answer.chunk_s[0]) == (4, 1)


def test_the_native_stream_of_llamacpp_is_not_taken_for_an_openai_one() -> None:
    answer = answer_of("llamacpp-b11434-native-stream")
    assert answer.error is ErrorClass.STREAM_ERROR
    assert '{"index":0,"content"' in (answer.error_message or "")


def test_an_engine_that_dies_in_the_middle_fails_the_request() -> None:
    answer = answer_of("vllm-0.32.0-midstream-enginedeath")
    assert answer.error is ErrorClass.STREAM_ERROR
    assert (answer.error_message or "").startswith("EngineCore encountered an issue.")
    assert (len(answer.chunk_s), answer.text) == (1, "----")


@pytest.mark.parametrize(
    ("name", "text", "prompt_tokens"),
    [
        ("llamacpp-b11434-completions-nonstream", " approach to the universe", 3),
        ("llamacpp-b11434-chat-nonstream", "I'm glad you", 32),
        ("vllm-0.32.0-completions-nonstream", "\x06imageruntrain", 3),
        ("vllm-0.32.0-chat-nonstream", " these\n these\n", 13),
    ],
)
def test_an_answer_that_is_not_streamed(name: str, text: str, prompt_tokens: int) -> None:
    answer = answer_of(name)
    assert (answer.error, answer.text, answer.finish_reason) == (None, text, "length")
    assert (answer.prompt_tokens, answer.output_tokens) == (prompt_tokens, 4)
    assert (len(answer.chunk_s), answer.chunk_tokens) == (1, [4])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("llamacpp-b11434-err-toolong", "request (3000 tokens) exceeds the available context"),
        ("llamacpp-b11434-err-badjson", "[json.exception.parse_error.101]"),
        ("vllm-0.32.0-err-toolong", "This model's maximum context length is 1024 tokens."),
        ("vllm-0.32.0-err-badjson", "1 validation error:"),
    ],
)
def test_a_refused_request_says_why(name: str, message: str) -> None:
    answer = answer_of(name)
    assert answer.error is ErrorClass.HTTP_4XX
    assert (answer.error_message or "").startswith(message)
    assert answer.output_tokens is None


@pytest.mark.parametrize("name", ["llamacpp-b11434-health", "llamacpp-b11434-tokenize"])
def test_a_json_body_that_is_no_answer_is_an_error_body(name: str) -> None:
    assert answer_of(name).error is ErrorClass.ERROR_BODY


def test_an_empty_body_is_incomplete() -> None:
    answer = answer_of("vllm-0.32.0-health")
    assert answer.error is ErrorClass.INCOMPLETE_STREAM
    assert answer.error_message == "HTTP 200 with an empty body"


def test_llamacpp_figures() -> None:
    bodies = {name: body_of(f"llamacpp-b11434-{name}") for name in ("metrics", "slots", "props")}
    sample = LLAMACPP.engine_sample(bodies)
    assert (sample.running, sample.waiting) == (0, 0)
    assert (sample.prompt_tokens_total, sample.prefix_cached_tokens_total) == (41 + 36, 36)
    assert sample.generation_tokens_total == 20
    assert (sample.kv_usage_ratio, sample.kv_provenance) == (0.0, Provenance.DERIVED)
    identity = LLAMACPP.identity(bodies)
    assert (identity.model, identity.version) == ("smol", "b0-unknown")
    assert (identity.max_running, identity.max_model_len_tokens) == (2, 2048)
    assert identity.kv_capacity_tokens == 4096


def test_vllm_figures() -> None:
    sample = VLLM.engine_sample({"metrics": body_of("vllm-0.32.0-metrics")})
    assert (sample.running, sample.waiting, sample.preemptions_total) == (0, 0, 0)
    assert sample.kv_provenance is Provenance.MEASURED
    assert sample.generation_tokens_total is not None
    assert sample.generation_tokens_total > 0
    identity = VLLM.identity({"models": body_of("vllm-0.32.0-models")})
    assert (identity.model, identity.max_model_len_tokens) == ("tiny", 1024)
