"""Doubts about what one level measured: errors, cut-off requests, too few, not steady."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from harness.analysis.facts import setting
from harness.analysis.stats import minimum_n
from harness.config import ValidityConf
from harness.types import Doubt, Phase, RunInfo, Severity
from harness.units import ratio_change, seconds

if TYPE_CHECKING:
    from harness.analysis.frame import Floats
    from harness.analysis.views import LevelView

_P99 = 0.99
_DRIFT = 0.10  # a shift between the thirds of a window that is no longer steady
_LEAST_PIECES = 12  # a window is cut into; four make a third
_LEAST_IN_A_PIECE = 5


def load_doubts(info: RunInfo, view: "LevelView") -> Iterator[Doubt]:
    """Doubts about one level."""
    rows = view.measured
    if not len(rows):
        yield Doubt(
            code="nothing_measured",
            what=f"no request was due in the measured window ({Phase.MEASURE.value})",
            advice="give the level more requests or time: load.requests, load.duration_s",
            severity=Severity.INVALID,
            where=view.level.name,
        )
        return
    yield from _errors(info, view)
    yield from _cut_off(view)
    if view.level.exhausted:
        yield Doubt(
            code="plan_exhausted",
            what=f"the plan's {view.level.planned} requests ran out before the level's time",
            advice="give the level load.requests enough for its time, or a shorter time",
            where=view.level.name,
        )
    need, n = minimum_n(_P99), int(rows["is_ok"].sum())
    if 0 < n < need:
        yield Doubt(
            code="few_samples",
            what=f"P99 needs {need} requests, has {n}",
            advice=f"load.requests={need} for a P99, or repeats; else read the P50 and P90",
            severity=Severity.NOTE,
            where=view.level.name,
        )
    yield from _drift(view)


def _errors(info: RunInfo, view: "LevelView") -> Iterator[Doubt]:
    ended = view.measured[~view.measured["is_censored"]]
    failed = ended[ended["is_failed"]]
    limit = float(setting(info, "validity.max_error_ratio", ValidityConf.max_error_ratio))
    if not len(failed) or len(failed) <= limit * len(ended):
        return
    kind = str(failed["error"].mode().iloc[0])
    messages = failed.loc[failed["error"] == kind, "error_message"].dropna()
    says = f": {messages.iloc[0]}" if len(messages) else ""
    is_all = len(failed) == len(view.measured)
    yield Doubt(
        code="all_failed" if is_all else "errors",
        what=f"{len(failed)} of {len(ended)} requests failed, most by {kind}{says}",
        advice="read engine.log in the run's folder; nothing was measured"
        if is_all
        else f"latencies are of what survived; the limit is validity.max_error_ratio={limit:g}",
        severity=Severity.INVALID,
        where=view.level.name,
    )


def _cut_off(view: "LevelView") -> Iterator[Doubt]:
    cut = int(view.measured["is_censored"].sum())
    if cut:
        yield Doubt(
            code="censored",
            what=f"{cut} of {len(view.measured)} requests were cut off at the end of the drain",
            advice="raise load.drain_timeout_s; they count as slower than anything finished",
            where=view.level.name,
        )


def _drift(view: "LevelView") -> Iterator[Doubt]:
    """First against last third of the window: median TTFT, and tokens a second."""
    from harness.analysis.rates import rate_series  # noqa: PLC0415 pandas
    from harness.analysis.views import latency_sample  # noqa: PLC0415 pandas

    if view.is_empty:
        return
    waits = _ttft_pieces(latency_sample(view, "ttft_s")[1])
    output = rate_series(view, "output_tokens_per_s")
    said = []
    if (moved := _moved(waits)) is not None:
        said.append(f"the median TTFT went from {seconds(moved[0])} to {seconds(moved[1])}")
    if output is not None and (moved := _moved(output)) is not None:
        said.append(f"output changed by {ratio_change(moved[1] / moved[0])}")
    if said:
        yield Doubt(
            code="not_steady",
            what=f"from the first to the last third of the window {' and '.join(said)}",
            advice="overload or a cold start: lower the load, warm up longer, or measure longer",
            where=view.level.name,
        )


def _ttft_pieces(ttft_s: "Floats") -> "Floats":
    """Median TTFT of consecutive pieces of the requests; none if they are too few."""
    if ttft_s.size < _LEAST_PIECES * _LEAST_IN_A_PIECE:
        return np.empty(0)
    return np.asarray([np.median(piece) for piece in np.array_split(ttft_s, _LEAST_PIECES)])


def _moved(series: "Floats") -> tuple[float, float] | None:
    """Means of the first and last third, if they differ by over 10 % and beyond their spread."""
    from harness.analysis.intervals import student_quantile  # noqa: PLC0415 scipy, late

    third = series.size // 3
    if series.size < _LEAST_PIECES:
        return None
    first, last = series[:third], series[-third:]
    before, after = float(first.mean()), float(last.mean())
    error = float(np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / third))
    is_apart = abs(after - before) > student_quantile(2 * third - 2, 0.9995) * error
    if before > 0 and is_apart and abs(after - before) > _DRIFT * before:
        return before, after
    return None
