"""Where a series has settled: MSER-5, and whether what comes before is unlike the rest.

MSER-5 (White 1997) cuts the front of a series where the error of the mean of what is left is
least: over batch means Y of five samples it minimises sum((Y_i - mean)^2) / (m - d)^2, both over
i > d. A minimum in the second half means that the series never settled.
"""

from typing import NamedTuple

import numpy as np

from harness.analysis.stats import Floats

BATCH = 5
_LEAST_BATCHES = 10
_LEAST_LEFT = 5  # with fewer batches left, their spread is small by chance
_ROUNDING = 1e-12  # of the whole sum of squares; below it two spreads are alike
_GROUPS = 20  # stretches whose differences show the noise, slow swings included
_MATTERS = 0.10  # a change of the mean that matters, as a share of it
_BEYOND_CHANCE = 0.9995  # one-sided: many series are looked at


class Settled(NamedTuple):
    """`cut`: samples at the front that are start-up, 0 where there is none to speak of.

    `is_steady`: whether at most half of the series was cut. `before`, `after`: means of what was
    cut and of the rest, equal where nothing was.
    """

    cut: int
    is_steady: bool
    before: float
    after: float


def mser5(series: Floats) -> int | None:
    """How many samples MSER-5 cuts off the front of a series in time, shape (n,).

    A multiple of five; more than half of them where the series never settles. None below 50
    samples, of which nothing can be said.
    """
    batches = _batches(series)
    if batches.size < _LEAST_BATCHES:
        return None
    left = batches.size - np.arange(batches.size - _LEAST_LEFT + 1)
    sums = np.cumsum(batches[::-1])[::-1][: left.size]
    squares = np.cumsum(batches[::-1] ** 2)[::-1][: left.size]
    spread = squares - sums**2 / left
    spread[spread < _ROUNDING * squares[0]] = 0.0
    return BATCH * int(np.argmin(spread / left**2))


def settled(series: Floats) -> Settled | None:
    """What MSER-5 says, where it matters; None if the series is too short to say anything.

    MSER-5 always finds a minimum, in mere noise too. A cut counts only if the mean before it
    differs from the mean after it by more than a tenth, and by more than noise can do: the noise
    is taken from the differences of neighbouring stretches, which no trend and no step spoils.
    """
    cut = mser5(series)
    if cut is None:
        return None
    mean = float(series.mean())
    if cut == 0:
        return Settled(cut=0, is_steady=True, before=mean, after=mean)
    before, after = float(series[:cut].mean()), float(series[cut:].mean())
    is_small = abs(before - after) <= _MATTERS * max(abs(before), abs(after))
    if is_small or abs(before - after) <= _noise(series, cut):
        return Settled(cut=0, is_steady=True, before=mean, after=mean)
    is_steady = cut <= series.size / 2
    return Settled(cut=cut, is_steady=is_steady, before=before, after=after)


def _batches(series: Floats) -> Floats:
    """Batch means of the series, centred, so that sums of squares keep their digits."""
    count = series.size // BATCH
    means = series[: count * BATCH].reshape(count, BATCH).mean(axis=1)
    return np.asarray(means - means.mean() if count else means)


def _noise(series: Floats, cut: int) -> float:
    """How far the means of two parts may lie apart by chance (von Neumann's variance)."""
    from harness.analysis.intervals import student_quantile  # noqa: PLC0415 scipy, late

    count = min(_GROUPS, series.size // BATCH)
    groups = np.asarray([group.mean() for group in np.array_split(series, count)])
    variance = float((np.diff(groups) ** 2).mean()) / 2
    share = cut / series.size
    error = np.sqrt(variance / count * (1 / share + 1 / (1 - share)))
    return float(student_quantile(count - 1, _BEYOND_CHANCE) * error)
