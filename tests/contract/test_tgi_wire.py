"""TGI's answers, written by hand after its sources, through the decoders of both routes."""

from pathlib import Path

import pytest

from adapters.tgi import TgiAdapter
from harness.answer import Answer
from harness.config import EngineConf, ModelConf, Route
from harness.testing import AdapterSuite
from harness.types import Chunk, EngineSample, ErrorClass, Provenance, ResponseHead, TokensSource

BODIES = Path(__file__).parent.parent / "data" / "tgi"
NATIVE = TgiAdapter(EngineConf(name="tgi"), ModelConf(name="m"))
CHAT = TgiAdapter(EngineConf(name="tgi", route=Route.CHAT), ModelConf(name="m"))
STREAM = ResponseHead(status=200, headers={"content-type": "text/event-stream"})


def body_of(name: str) -> bytes:
    return (BODIES / f"{name}.sse").read_bytes()


def answered(adapter: TgiAdapter, body: bytes, head: ResponseHead = STREAM) -> Answer:
    answer = Answer(adapter.decoder(head))
    answer.feed(0.0, body)
    answer.end(1.0)
    return answer


class TestNativeLength(AdapterSuite):
    adapter = NATIVE
    body = body_of("native_length")
    output_tokens, prompt_tokens, token_chunks = 3, 2, 3
    text, finish_reason = " tok0 tok1 tok2", "length"


class TestNativeEos(AdapterSuite):
    adapter = NATIVE
    body = body_of("native_eos")
    output_tokens, prompt_tokens, token_chunks = 3, 2, 3
    text, finish_reason = " tok0 tok1", "eos_token"


class TestChat(AdapterSuite):
    adapter = CHAT
    body = body_of("chat_usage")
    output_tokens, prompt_tokens, token_chunks = 3, 4, 2  # the end token has no text there
    text, finish_reason = " tok0 tok1", "stop"


class TestCompletions(AdapterSuite):
    adapter = CHAT  # the route is not measured, but its bytes are read as OpenAI's
    body = body_of("completions")
    output_tokens, prompt_tokens, token_chunks = 3, 2, 3
    text, finish_reason = " tok0 tok1</s>", "eos_token"


def test_data_may_come_without_a_space_and_between_comments() -> None:
    body = body_of("native_eos")
    for other in (
        body.replace(b"data: ", b"data:"),
        b":\n\n" + body.replace(b"\n\n", b"\n\n:\n\n"),
        body.replace(b'"index":', b'"index":1'),  # another place to begin counting
        body.replace(b'"index":1,', b"").replace(b'"index":2,', b"").replace(b'"index":3,', b""),
    ):
        assert other != body
        answer = answered(NATIVE, other)
        assert answer.error is None
        assert (answer.output_tokens, answer.chunk_tokens) == (3, [1, 1, 1])


def test_without_details_the_tokens_are_counted_by_event() -> None:
    start = body_of("native_eos").index(b'{"finish_reason"')
    answer = answered(NATIVE, body_of("native_eos")[:start] + b"null}\n\n")
    assert (answer.error, answer.output_tokens, answer.text) == (None, 3, " tok0 tok1")
    assert (answer.prompt_tokens, answer.finish_reason) == (None, None)


@pytest.mark.parametrize(("name", "adapter"), [("native_error", NATIVE), ("openai_error", CHAT)])
def test_an_error_inside_a_stream_fails_the_request(name: str, adapter: TgiAdapter) -> None:
    answer = answered(adapter, body_of(name))
    assert answer.error is ErrorClass.STREAM_ERROR
    assert answer.error_message == "Model is overloaded"


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (422, b'{"error":"Input validation error: x","error_type":"validation"}', 4, "Input"),
        (422, b'{"error":"Template error: x","error_type":"template_error"}', 4, "Template"),
        (424, b'{"error":"Request failed during generation: x","error_type":"generation"}', 4, "R"),
        (429, b'{"error":"Model is overloaded","error_type":"overloaded"}', 429, "Model is over"),
        (500, b'{"error":"Incomplete generation","error_type":"incomplete_generation"}', 5, "Inc"),
        (503, b'{"error":"unhealthy","error_type":"healthcheck"}', 5, "unhealthy"),
        (422, b"Failed to deserialize the JSON body: missing field `inputs`", 4, "Failed"),
        (401, b"", 4, "HTTP 401"),
    ],
)
def test_an_error_before_the_stream_says_why(
    status: int, body: bytes, error: int, message: str
) -> None:
    classes = {4: ErrorClass.HTTP_4XX, 5: ErrorClass.HTTP_5XX, 429: ErrorClass.RATE_LIMITED}
    for adapter in (NATIVE, CHAT):
        answer = answered(adapter, body, ResponseHead(status=status))
        assert answer.error is classes[error]
        assert (answer.error_message or "").startswith(message)


def test_a_whole_answer_of_either_route_is_read() -> None:
    body = (
        b'{"generated_text":" a b","details":{"finish_reason":"length","generated_tokens":2,'
        b'"seed":null,"prefill":[],"tokens":[]}}'
    )
    head = ResponseHead(status=200, headers={"x-prompt-tokens": "7"})
    for whole in (body, b"[" + body + b"]"):
        answer = answered(NATIVE, whole, head)
        assert (answer.error, answer.text, answer.finish_reason) == (None, " a b", "length")
        assert (answer.output_tokens, answer.prompt_tokens) == (2, 7)
        assert answer.tokens_source is TokensSource.USAGE
    assert answered(NATIVE, body, ResponseHead(status=200)).prompt_tokens is None
    assert answered(NATIVE, b"[]", head).error is ErrorClass.ERROR_BODY
    odd = ResponseHead(status=200, headers={"x-prompt-tokens": "9" * 5000})
    assert answered(NATIVE, body, odd).prompt_tokens is None


def test_an_unfinished_answer_is_incomplete() -> None:
    first: list[Chunk] = NATIVE.decoder(STREAM).feed(body_of("native_length")[:130])
    assert [chunk.text for chunk in first] == [" tok0"]
    assert answered(NATIVE, body_of("native_length")[:130]).error is ErrorClass.INCOMPLETE_STREAM


METRICS = b"""# TYPE tgi_queue_size gauge
tgi_queue_size 3
tgi_batch_current_size 7
tgi_request_failure{err="overloaded"} 2
tgi_request_input_length_bucket{le="10"} 1
tgi_request_input_length_sum 120
tgi_request_input_length_count 4
tgi_request_generated_tokens_sum 64
"""


def test_figures_are_the_queue_the_batch_and_token_totals() -> None:
    sample = NATIVE.engine_sample({"metrics": METRICS})
    assert (sample.waiting, sample.running) == (3, 7)
    assert (sample.prompt_tokens_total, sample.generation_tokens_total) == (120, 64)
    assert sample.kv_usage_ratio is None
    assert sample.kv_provenance is Provenance.NOT_EXPOSED
    assert (sample.prefix_cached_tokens_total, sample.preemptions_total) == (None, None)


def test_before_its_first_event_a_series_is_not_zero_but_absent() -> None:
    assert NATIVE.engine_sample({"metrics": b""}) == EngineSample()
    some = NATIVE.engine_sample({"metrics": b"tgi_queue_size 1\n"})
    assert (some.waiting, some.running, some.generation_tokens_total) == (1, None, None)
