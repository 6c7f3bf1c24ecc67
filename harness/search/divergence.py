"""When a system runs away: ever more requests in flight and ever longer waits.

Both must rise with a slope whose 95 % interval excludes 0, over the last 30 to 120 s, and the
waits must be beyond what the SLO allows (after guidellm's over-saturation test, method.md 2.1.6).
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.analysis.intervals import student_quantile

LEAST_S, MOST_S = 30.0, 120.0
_LEAST_POINTS = 10
_TWO_SIDED = 0.975
_USUAL_FLOOR_S = 2.5
_LEAST_RISE = 0.05  # over the time looked at, as a share of the mean


def diverges(
    now_s: float,
    in_flight: Sequence[tuple[float, int]],
    ttft: Sequence[tuple[float, float]],
    *,
    ttft_limit_s: float | None,
) -> bool:
    """Whether waiting longer is of no use.

    Args:
        now_s: since the probe's start, like all times here.
        in_flight: (time, requests in flight), ascending.
        ttft: (due time, TTFT) of requests whose first token has come, in seconds.
        ttft_limit_s: of the SLO; None: 2.5 s.
    """
    if now_s < LEAST_S:
        return False
    waits = [wait for _, wait in _since(now_s, ttft)]
    floor_s = _USUAL_FLOOR_S if ttft_limit_s is None else ttft_limit_s
    is_beyond = bool(waits) and float(np.median(waits[-max(1, len(waits) // 3) :])) > floor_s
    return is_beyond and grows(now_s, in_flight, ttft)


def grows(
    now_s: float, in_flight: Sequence[tuple[float, int]], ttft: Sequence[tuple[float, float]]
) -> bool:
    """Whether queue and waits still rise, whatever the SLO allows: such a rate cannot pass yet.

    Args as of `diverges`.
    """
    counts, waits = _since(now_s, in_flight), _since(now_s, ttft)
    if min(len(counts), len(waits)) < _LEAST_POINTS:
        return False
    return _rises(np.asarray(counts)) and _rises(np.asarray(waits))


def _since(now_s: float, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those of the last 120 s."""
    return [(t, float(y)) for t, y in points if t >= now_s - MOST_S]


def _rises(points: npt.NDArray[np.float64]) -> bool:
    """Whether the least-squares slope is above 0 beyond its 95 % interval, and worth a word."""
    t, y = points[:, 0] - points[:, 0].mean(), points[:, 1]
    spread = float((t**2).sum())
    if spread == 0:
        return False
    slope = float((t * y).sum()) / spread
    if slope * float(t[-1] - t[0]) <= _LEAST_RISE * float(y.mean()):
        return False
    rest = y - y.mean() - slope * t
    error = math.sqrt(float((rest**2).sum()) / (len(y) - 2) / spread)
    return slope > student_quantile(len(y) - 2, _TWO_SIDED) * error
