"""Whatever becomes of a request, it never makes a figure better."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.analysis.estimates import cell_figures
from harness.analysis.frame import request_frame, sample_frame
from harness.analysis.metrics import METRICS, Kind
from harness.analysis.views import level_view
from harness.config import SloConf
from harness.testing.records import make_record
from harness.types import EngineSample, ErrorClass, Estimate, HostSample, Level, Record

SLO = SloConf(name="x", ttft_s=0.5, tpot_s=0.2, e2e_s=3.0)
LEVEL = Level(index=0, name="x", shape="users", users=1, window_end_s=100.0)
LATENCIES = [m.name for m in METRICS if m.kind is Kind.PERCENTILE]
NO_SAMPLES = sample_frame([], EngineSample), sample_frame([], HostSample)

gaps = st.lists(st.floats(0.001, 2.0), max_size=4)
fates = st.sampled_from(["ok", "ok", "ok", "ok", "failed", "timeout", "cut"])


def answered(index: int, wait_s: float, gaps_s: list[float], fate: str) -> Record:
    stamps = [index * 0.1 + wait_s]
    for gap_s in gaps_s:
        stamps.append(stamps[-1] + gap_s)
    record = make_record(
        index,
        due_s=index * 0.1,
        sent_s=index * 0.1 + 0.001,
        chunk_s=tuple(stamps),
        output_tokens=len(stamps),
        planned_output_tokens=len(stamps),
    )
    return record if fate == "ok" else lose(record, fate, keep=len(stamps))


def lose(record: Record, fate: str, keep: int) -> Record:
    """The same request, failed, timed out or cut off after `keep` of its chunks."""
    stamps = record.chunk_s[:keep]
    came = {"chunk_s": stamps, "chunk_tokens": (None,) * len(stamps), "output_tokens": None}
    if fate == "cut":
        age_s = (stamps[-1] if stamps else record.due_s) - record.due_s + 0.01
        return replace(record, **came, censored_s=age_s)
    error = ErrorClass.TIMEOUT if fate == "timeout" else ErrorClass.HTTP_5XX
    return replace(record, **came, error=error)


def figures(records: list[Record]) -> dict[str, Estimate]:
    engine, host = NO_SAMPLES
    view = level_view(request_frame(records), LEVEL, engine=engine, host=host, slo=SLO)
    return {name: estimate for name, (estimate, _) in cell_figures([view]).items()}


def bound(estimate: Estimate) -> float | None:
    """What is claimed: a value that falls on a lost request is only a lower bound of it."""
    return math.inf if estimate.censored else estimate.value


@st.composite
def loads(draw: st.DrawFn) -> tuple[list[Record], list[Record]]:
    n = draw(st.integers(1, 60))
    records = [answered(i, draw(st.floats(0.001, 2.0)), draw(gaps), draw(fates)) for i in range(n)]
    ok = [record for record in records if record.is_ok]
    if not ok:
        return records, records
    victim = draw(st.sampled_from(ok))
    fate = draw(st.sampled_from(["failed", "timeout", "cut"]))
    lost = lose(victim, fate, draw(st.integers(0, len(victim.chunk_s))))
    return records, [lost if record is victim else record for record in records]


@settings(max_examples=60, deadline=None)
@given(pair=loads())
def test_losing_an_answer_never_lowers_a_latency_nor_raises_attainment(
    pair: tuple[list[Record], list[Record]],
) -> None:
    before, after = figures(pair[0]), figures(pair[1])
    for name in LATENCIES:
        was, now = bound(before[name]), bound(after[name])
        if was is not None and now is not None:
            assert now >= was, name
    shares = (before["attainment_ratio"].value, after["attainment_ratio"].value)
    assert (shares[1] or 0.0) <= (shares[0] or 0.0)


@pytest.mark.parametrize("fate", ["failed", "timeout", "cut"])
def test_the_slowest_that_is_lost_still_counts(fate: str) -> None:
    """One in eight is slow: with it lost the P90 is not known, instead of a quick one's."""
    records = [answered(i, 0.1 if i % 8 else 1.0, [0.01], "ok") for i in range(80)]
    lost = [record if record.index % 8 else lose(record, fate, 0) for record in records]
    before, after = figures(records)["ttft_p90_s"], figures(lost)["ttft_p90_s"]
    assert before.value == pytest.approx(1.0)
    assert bound(after) == math.inf
    assert after.ci_high == math.inf
    assert after.n == before.n == 80
