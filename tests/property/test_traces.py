"""Arrivals of any trace: ascending from 0, thinned the same way at every ratio, scaled exactly."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import TraceConf
from scenarios.traces import Trace, read_trace

ROWS = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(1, 10**6), st.integers(1, 10**4)),
    min_size=1,
    max_size=40,
)
RATIOS = st.floats(0.05, 1)
SCALES = st.floats(1e-3, 1e3)
SEEDS = st.text("0123456789abcdef", min_size=1, max_size=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


def read(
    folder: Path,
    rows: Sequence[tuple[int, int, int]],
    seed: str = "1",
    *,
    time_scale: float = 1.0,
    keep_ratio: float = 1.0,
) -> Trace:
    """A trace of rows (time in 100 ns, input and output tokens)."""
    path = folder / "own.csv"
    lines = (f"{t // 10**7}.{t % 10**7:07},{a},{b}\n" for t, a, b in rows)
    path.write_text("time,input_tokens,output_tokens\n" + "".join(lines))
    conf = TraceConf(path=str(path), time_scale=time_scale, keep_ratio=keep_ratio)
    return read_trace(conf, seed=seed)


@given(data=st.data(), rows=ROWS)
def test_any_order_of_rows_gives_the_same_arrivals(
    folder: Path, data: st.DataObject, rows: list[tuple[int, int, int]]
) -> None:
    trace = read(folder, data.draw(st.permutations(rows)))
    times = sorted(time for time, _, _ in rows)
    assert list(trace.offsets_s) == [(time - times[0]) / 10**7 for time in times]
    assert trace.offsets_s[0] == 0
    triples = zip(trace.offsets_s, trace.input_tokens, trace.output_tokens, strict=True)
    assert sorted(triples) == sorted(((t - times[0]) / 10**7, a, b) for t, a, b in rows)


@given(rows=ROWS, seed=SEEDS, ratios=st.tuples(RATIOS, RATIOS))
def test_what_is_kept_at_one_ratio_is_kept_at_every_higher_one(
    folder: Path, rows: list[tuple[int, int, int]], seed: str, ratios: tuple[float, float]
) -> None:
    numbered = [(time, 1 + number, 1) for number, (time, _, _) in enumerate(rows)]
    numbered += [(0, 10**6 + number, 1) for number in range(400)]  # never thinned to nothing
    low, high = (
        set(read(folder, numbered, seed, keep_ratio=ratio).input_tokens) for ratio in sorted(ratios)
    )
    assert low <= high
    assert high <= {tokens for _, tokens, _ in numbered}


@given(rows=ROWS, scale=SCALES)
def test_the_scale_multiplies_exactly(
    folder: Path, rows: list[tuple[int, int, int]], scale: float
) -> None:
    plain, scaled = read(folder, rows), read(folder, rows, time_scale=scale)
    assert list(scaled.offsets_s) == [offset * scale for offset in plain.offsets_s]
    assert scaled.input_tokens == plain.input_tokens
    assert scaled.output_tokens == plain.output_tokens
