import time

import numpy as np
import pyarrow as pa
import pytest

from harness.analysis.frame import chunk_token_counts, fluidity, ragged, request_frame
from harness.store_format import RECORD_SCHEMA
from harness.testing.records import make_record
from harness.types import ErrorClass, Phase

_METHOD = make_record(
    0,
    sent_s=0.01,
    chunk_s=(0.40, 0.59, 0.65, 1.19),
    chunk_tokens=(1, 4, 1, 2),
    output_tokens=8,
    stream_end_s=1.3,
)


def test_the_methods_vector_gives_its_figures() -> None:
    row = request_frame([_METHOD]).iloc[0]
    assert row["ttft_s"] == pytest.approx(0.40)
    assert row["ttft_net_s"] == pytest.approx(0.39)
    assert row["lag_s"] == pytest.approx(0.01)
    assert row["e2e_s"] == pytest.approx(1.19)
    assert row["tpot_s"] == pytest.approx(0.79 / 7)
    assert row["normalized_s"] == pytest.approx(0.14875)
    assert list(row["gaps_s"]) == pytest.approx([0.19, 0.06, 0.54])
    assert fluidity(request_frame([_METHOD]), 0.5, 0.1) == pytest.approx([7 / 8])


def test_tokens_in_the_first_chunk_are_not_decoded_after_it() -> None:
    record = make_record(chunk_s=(0.40, 0.59, 0.65), chunk_tokens=(3, 4, 1), output_tokens=8)
    assert request_frame([record])["tpot_s"].iloc[0] == pytest.approx(0.05)


def test_tpot_needs_two_chunks_and_a_token_after_the_first() -> None:
    one_chunk = make_record(0, chunk_s=(0.4,), output_tokens=5)
    all_in_first = make_record(1, chunk_s=(0.4, 0.5), chunk_tokens=(3, 0), output_tokens=3)
    no_count = make_record(2, chunk_s=(0.4, 0.5), output_tokens=None)
    frame = request_frame([one_chunk, all_in_first, no_count])
    assert frame["tpot_s"].isna().all()
    assert frame["ttft_s"].tolist() == [0.4, 0.4, 0.4]


def test_latency_counts_from_due_and_e2e_ends_at_the_last_token() -> None:
    record = make_record(due_s=10.0, sent_s=10.2, chunk_s=(10.5, 11.0), stream_end_s=12.0)
    row = request_frame([record]).iloc[0]
    assert (row["ttft_s"], row["e2e_s"]) == (0.5, 1.0)
    assert row["lag_s"] == pytest.approx(0.2)


def test_ok_failed_and_cut_off_exclude_each_other() -> None:
    records = [
        make_record(0),
        make_record(1, error=ErrorClass.TIMEOUT, chunk_s=(), output_tokens=None, sent_s=None),
        make_record(2, censored_s=30.0, phase=Phase.DRAIN),
    ]
    frame = request_frame(records)
    assert frame["is_ok"].tolist() == [True, False, False]
    assert frame["is_failed"].tolist() == [False, True, False]
    assert frame["is_censored"].tolist() == [False, False, True]
    assert frame["is_measured"].tolist() == [True, True, False]
    assert np.isnan(frame["ttft_s"].iloc[1])
    assert np.isnan(frame["lag_s"].iloc[1])


def test_rows_come_in_due_order() -> None:
    frame = request_frame([make_record(0, due_s=2.0), make_record(1, due_s=1.0)])
    assert frame["index"].tolist() == [1, 0]


def test_gaps_never_cross_requests() -> None:
    records = [make_record(i, chunk_s=chunks) for i, chunks in enumerate([(1.0, 2.0), (), (9.0,)])]
    rows, gaps = ragged(request_frame(records)["gaps_s"])
    assert (rows.tolist(), gaps.tolist()) == ([0], [1.0])


def test_tokens_that_no_chunk_names_are_shared_by_the_others() -> None:
    records = [
        make_record(0, chunk_s=(1.0, 2.0, 3.0, 4.0), output_tokens=10),
        make_record(1, chunk_s=(1.0, 2.0, 3.0), chunk_tokens=(1, None, None), output_tokens=7),
        make_record(2, chunk_s=(1.0, 2.0), output_tokens=None, censored_s=5.0),
    ]
    counts = chunk_token_counts(request_frame(records))
    assert counts.tolist() == [2.5] * 4 + [1, 3, 3] + [1, 1]


def test_fluidity_counts_whole_tokens() -> None:
    # 10 tokens in 4 chunks are 2, 3, 3 and 2 of them.
    record = make_record(chunk_s=(1.0, 2.0, 3.0, 4.0), output_tokens=10)
    frame = request_frame([record, make_record(1, chunk_s=(), output_tokens=None)])
    shares = fluidity(frame, 1.0, 0.5)
    assert shares[0] == 1.0
    assert fluidity(frame, 1.0, 0.2)[0] == pytest.approx(0.2)
    assert np.isnan(shares[1])


def test_no_requests_give_an_empty_frame_with_all_columns() -> None:
    frame = request_frame([])
    assert len(frame) == 0
    assert {"ttft_s", "tpot_s", "e2e_s", "lag_s", "gaps_s", "is_ok"} <= set(frame.columns)
    assert fluidity(frame, 1.0, 1.0).size == 0


def test_a_large_run_takes_seconds() -> None:
    n, chunks = 20_000, 100
    stamps = np.tile(np.linspace(0.1, 2.0, chunks), n)
    offsets = pa.array(np.arange(n + 1) * chunks, pa.int32())
    columns = {field.name: pa.nulls(n, field.type) for field in RECORD_SCHEMA}
    columns["chunk_s"] = pa.ListArray.from_arrays(offsets, pa.array(stamps))
    columns["chunk_tokens"] = pa.ListArray.from_arrays(offsets, pa.nulls(n * chunks, pa.int32()))
    columns["output_tokens"] = pa.array(np.full(n, chunks))
    columns["due_s"] = pa.array(np.zeros(n))
    columns["index"] = pa.array(np.arange(n))
    started = time.monotonic()
    frame = request_frame(pa.table(columns, schema=RECORD_SCHEMA))
    assert ragged(frame["gaps_s"])[1].size == n * (chunks - 1)
    assert time.monotonic() - started < 5
