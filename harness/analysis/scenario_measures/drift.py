"""Measures over hours: do latency and memory stand still? Theil-Sen slopes with intervals."""

from collections.abc import Sequence

import numpy as np

from harness.analysis.frame import floats
from harness.analysis.intervals import estimate_mean
from harness.analysis.scenario_measures.runs import PlayedRun, levels_of
from harness.analysis.scenario_measures.table import Figure, Found
from harness.analysis.stats import CONFIDENCE, Floats
from harness.analysis.views import LevelView
from harness.types import Estimate
from harness.units import interval, quantity

_HOUR_S = 3600.0
_LEAST_POINTS = 6
_PIECES = (6, 60)  # pieces of a window, of 20 requests or more where they suffice
_A_PIECE = 20
_MOST_SAMPLES = 400  # slopes are of all pairs


def theil_sen(x: Floats, y: Floats) -> Estimate:
    """Median slope of all pairs of points, with the 95 % interval of Sen (1968).

    No value below 6 points.
    """
    if x.size < _LEAST_POINTS:
        return Estimate(value=None, n=int(x.size), needed=_LEAST_POINTS)
    from scipy.stats import theilslopes  # noqa: PLC0415 heavy, only here

    found = theilslopes(y, x, alpha=CONFIDENCE)
    return Estimate(
        value=float(found.slope),
        ci_low=float(found.low_slope),
        ci_high=float(found.high_slope),
        n=int(x.size),
        n_eff=float(x.size),
    )


def drift(runs: Sequence[PlayedRun]) -> Found:
    """How median TPOT and TTFT move over a level, in seconds an hour."""
    figures: list[Figure] = []
    said: list[str] = []
    for level, views in levels_of(runs).items():
        for title, column in (("TPOT", "tpot_s"), ("TTFT", "ttft_s")):
            slope = _over_runs([theil_sen(*_medians(view, column)) for view in views])
            figures.append(Figure(label=f"median {title}", unit="s/h", value=slope, level=level))
            said.append(_moves(f"median {title} at {level}", slope, "s/h"))
    return figures, "; ".join(said[:2]) or "nothing was measured"


def _medians(view: LevelView, column: str) -> tuple[Floats, Floats]:
    """(hours since the window's start, median) of equal pieces of the window, by due time."""
    values = view.column(column)
    known = ~np.isnan(values) & view.flag("is_ok")
    hours = (view.column("due_s")[known] - view.level.window_start_s) / _HOUR_S
    pieces = int(np.clip(hours.size // _A_PIECE, *_PIECES))
    piece = np.clip(hours * _HOUR_S / view.window_s * pieces, 0, pieces - 1).astype(np.int64)
    held = [number for number in range(pieces) if (piece == number).any()]
    middle = (np.asarray(held, dtype=np.float64) + 0.5) * view.window_s / pieces / _HOUR_S
    return middle, np.asarray([np.median(values[known][piece == number]) for number in held])


def memory_growth(runs: Sequence[PlayedRun]) -> Found:
    """How the engine's resident memory moves over a level, in bytes an hour."""
    figures = []
    said = ""
    for level, views in levels_of(runs).items():
        slope = _over_runs([theil_sen(*_memory(view)) for view in views])
        figures.append(Figure(label="engine memory", unit="bytes/h", value=slope, level=level))
        said = said or _moves(f"engine memory at {level}", slope, "bytes/h")
    return figures, said or "nothing was measured"


def _memory(view: LevelView) -> tuple[Floats, Floats]:
    bytes_, hours = floats(view.host["engine_rss_bytes"]), floats(view.host["t_s"]) / _HOUR_S
    known = np.flatnonzero(~np.isnan(bytes_))
    known = known[:: max(1, -(-known.size // _MOST_SAMPLES))]
    return hours[known], bytes_[known]


def _over_runs(slopes: Sequence[Estimate]) -> Estimate:
    """One run's own slope and interval; of several, their mean with Student's."""
    known = [slope.value for slope in slopes if slope.value is not None]
    if len(slopes) == 1 or not known:
        return slopes[0]
    return estimate_mean(known)


def _moves(what: str, slope: Estimate, unit: str) -> str:
    if slope.value is None:
        return f"{what}: too few points for a slope"
    ends = interval(slope.ci_low, slope.ci_high, unit)
    if slope.ci_low is None or slope.ci_high is None:
        return f"{what} moves by {quantity(slope.value, unit)}"
    if slope.ci_low <= 0 <= slope.ci_high:
        return f"{what} stands still within what the run can show {ends}"
    word = "rises" if slope.value > 0 else "falls"
    return f"{what} {word} by {quantity(abs(slope.value), unit)} {ends}"
