"""Answers that broke other tools: (delay, bytes) in, the right figures out."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.llamacpp import LlamaCppAdapter
from adapters.metrics import Metrics, known_sample
from adapters.openai import OpenAIAdapter
from adapters.tgi import TgiAdapter
from harness.adapter import Adapter
from harness.answer import Answer
from harness.config import EngineConf, ModelConf, Route
from harness.testing import figures, played_answer
from harness.types import ErrorClass, Provenance, ResponseHead, TokensSource

CASES = Path(__file__).parent.parent / "data" / "cases"
EXPECTED = json.loads((CASES / "expected.json").read_text())
MODEL = ModelConf(name="m")
OPENAI = OpenAIAdapter(EngineConf(name="openai", route=Route.CHAT), MODEL)
TGI = TgiAdapter(EngineConf(name="tgi"), MODEL)
STREAM = ResponseHead(status=200, headers={"content-type": "text/event-stream"})
GOOD = ["C01", "C02", "C05", "C06", "C07", "C09", "C10", "C11", "C12", "C23", "C25"]


def answer_of(file: str, adapter: Adapter = OPENAI, **kwargs: Any) -> Answer:
    pieces = json.loads((CASES / file).read_text())
    assert pieces
    return played_answer(adapter.decoder(STREAM), pieces, **kwargs)


def said(answer: Answer) -> dict[str, Any]:
    f = figures(answer)
    return {
        "ttft_ms": f.ttft_ms,
        "ttfc_ms": f.first_content_ms,
        "gaps_ms": list(f.gaps_ms),
        "tpot_ms": f.tpot_ms,
        "e2e_ms": f.stream_end_ms,
        "output_tokens": answer.output_tokens,
        "prompt_tokens": answer.prompt_tokens,
        "reasoning_tokens": answer.reasoning_tokens,
        "tokens_source": str(answer.tokens_source),
        "first_event_tokens": answer.chunk_tokens[0],
        "chunks": len(answer.chunk_s),
        "tokens_per_chunk": (answer.output_tokens or 0) / len(answer.chunk_s),
        "text": answer.text,
        "status": "failed" if answer.error else "ok",
    }


def matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list) and not isinstance(value, list):
        return value in wanted  # either of these is right
    if isinstance(wanted, float):
        return bool(value == pytest.approx(wanted, abs=1e-9))
    return bool(value == wanted)


@pytest.mark.parametrize("case", GOOD, ids=[f"{c}: {EXPECTED[c]['title']}" for c in GOOD])
def test_case(case: str) -> None:
    answer = answer_of(f"{case}.sse", TGI if case == "C25" else OPENAI)
    found = said(answer)
    wanted = EXPECTED[case]["expect"]
    assert wanted
    assert {k: found[k] for k, v in wanted.items() if not matches(found[k], v)} == {}
    assert answer.merged_reads == 0


def test_c06_running_usage_gives_the_tokens_of_each_chunk() -> None:
    answer = answer_of("C06.sse")
    assert answer.chunk_tokens == [5, 1, 1]
    assert answer.tokens_source is TokensSource.USAGE


def test_c09_without_usage_the_tokenizer_counts_else_the_chunks() -> None:
    by_words = answer_of("C09.sse", count_tokens=lambda text: len(text.split()))
    assert (by_words.output_tokens, by_words.tokens_source) == (3, TokensSource.TOKENIZER)
    by_chunks = answer_of("C09.sse")
    assert (by_chunks.output_tokens, by_chunks.tokens_source) == (3, TokensSource.CHUNKS)
    assert by_chunks.chunk_tokens == [None, None, None]


def test_c12_a_cr_ends_the_line_at_once() -> None:
    assert figures(answer_of("C12.sse")).ttft_ms == 20


def test_c17_error_event_in_the_middle_of_a_200_stream() -> None:
    answer = answer_of("C17.sse")
    assert (answer.error, answer.error_message) == (ErrorClass.STREAM_ERROR, "engine stopped")
    assert (answer.output_tokens, answer.tokens_source) == (2, TokensSource.CHUNKS)
    assert figures(answer).ttft_ms == 20


def test_c17_tgi_error_event() -> None:
    for adapter in (TGI, OPENAI):
        answer = answer_of("C17.tgi.sse", adapter)
        assert answer.error is ErrorClass.STREAM_ERROR
        assert answer.error_message == "Model is overloaded"
        assert (figures(answer).ttft_ms, answer.output_tokens) == (None, None)


def test_c18_http_200_with_a_json_error_body() -> None:
    (reply,) = json.loads((CASES / "C18.http.json").read_text())["replies"]
    headers = {name.lower(): value for name, value in reply["headers"].items()}
    head = ResponseHead(status=reply["status"], headers=headers)
    for adapter in (OPENAI, TGI):
        answer = played_answer(adapter.decoder(head), reply["body"])
        wanted = EXPECTED["C18"]["expect"]
        assert (answer.error, answer.error_message) == (ErrorClass.ERROR_BODY, wanted["message"])
        assert figures(answer).ttft_ms is None


def test_c19_stream_ends_cleanly_but_incomplete() -> None:
    answer = answer_of("C19.sse")
    assert answer.error is ErrorClass.INCOMPLETE_STREAM
    assert (answer.output_tokens, answer.tokens_source) == (2, TokensSource.CHUNKS)
    assert figures(answer).ttft_ms == 20


def test_c25_every_tgi_event_is_one_token() -> None:
    answer = answer_of("C25.sse", TGI)
    assert answer.chunk_tokens == [1, 1, 1]
    assert answer.tokens_source is TokensSource.USAGE
    assert answer.finish_reason == "eos_token"


@pytest.mark.parametrize("file", ["C30.prom", "C30.old.prom", "C30.sgl.prom"])
def test_c30_metric_names_change_between_versions(file: str) -> None:
    sample = known_sample((CASES / file).read_bytes())
    assert sample.kv_usage_ratio == 0.42
    assert sample.kv_provenance is Provenance.MEASURED
    assert sample.running is None


def test_c31_several_engines_are_summed_and_their_ratio_is_not() -> None:
    sample = known_sample((CASES / "C31.prom").read_bytes())
    assert (sample.running, sample.waiting) == (8, 2)
    assert sample.generation_tokens_total == 2500
    assert sample.kv_usage_ratio == 0.5


def test_c34_nan_before_the_first_request_is_none() -> None:
    body = (CASES / "C34.prom").read_bytes()
    metrics = Metrics(body)
    assert metrics.total("llamacpp:n_busy_slots_per_decode") is None
    assert metrics.total("llamacpp:prompt_tokens_total") == 0
    adapter = LlamaCppAdapter(EngineConf(name="llamacpp"), MODEL)
    sample = adapter.engine_sample({"metrics": body})
    assert (sample.running, sample.prompt_tokens_total, sample.waiting) == (1, 0, None)


def test_a_bad_line_does_not_cost_the_scrape() -> None:
    metrics = Metrics(b'a 1\nb{x="y 2\n}} nonsense\nc{l="1"} 3\nc{l="2"} 4\n')
    assert (metrics.total("a"), metrics.total("b"), metrics.total("c")) == (1, None, 7)
