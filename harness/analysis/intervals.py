"""Intervals for means, shares and rates.

Student over runs, binomial for shares, and the stationary block bootstrap within one run.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.analysis.stats import CONFIDENCE, autocorrelation_time, effective_n
from harness.types import Estimate

_DRAWS = 1000
_BLOCK_FACTOR = 5  # mean block = 5 tau, as the method adopts


def student_quantile(df: float, probability: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit  # noqa: PLC0415 heavy, only here

    return float(stdtrit(df, probability))


def student_two_sided_p(t: float, df: float) -> float:
    """P(|T| >= |t|) for Student's t."""
    from scipy.special import stdtr  # noqa: PLC0415 heavy, only here

    return float(2 * stdtr(df, -abs(t)))


def estimate_mean(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Mean over runs with Student's interval; no interval for one run, None for none."""
    sample = np.asarray(values, dtype=np.float64)
    n = sample.size
    if n == 0:
        return Estimate(value=None)
    mean = float(sample.mean())
    if n == 1:
        return Estimate(value=mean, n=1, n_eff=1.0, needed=2)
    error = float(sample.std(ddof=1)) / math.sqrt(n)
    half = student_quantile(n - 1, (1 + confidence) / 2) * error
    return Estimate(value=mean, ci_low=mean - half, ci_high=mean + half, n=n, n_eff=float(n))


def estimate_share(indicators: Sequence[npt.ArrayLike], confidence: float = CONFIDENCE) -> Estimate:
    """Share of ones with the Clopper-Pearson interval at the effective sample size.

    `indicators`: one array of 0 and 1 a run, in due order.
    """
    runs = [np.asarray(run, dtype=np.float64) for run in indicators if np.size(run)]
    n = sum(run.size for run in runs)
    if n == 0:
        return Estimate(value=None)
    from scipy.special import betaincinv  # noqa: PLC0415 heavy, only here

    share = sum(float(run.sum()) for run in runs) / n
    n_eff = effective_n(runs)
    hits, half = share * n_eff, (1 - confidence) / 2
    misses = n_eff - hits
    low = float(betaincinv(hits, misses + 1, half)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, misses, 1 - half)) if misses > 0 else 1.0
    return Estimate(value=share, ci_low=low, ci_high=high, n=n, n_eff=n_eff)


def stationary_indices(
    n: int, mean_block: float, rng: np.random.Generator, draws: int = _DRAWS
) -> npt.NDArray[np.int64]:
    """Resampled positions 0..n-1, shape (draws, n): runs of neighbours of geometric length.

    The stationary bootstrap of Politis and Romano (1994); the series is taken as a circle.
    """
    starts = rng.integers(0, n, size=(draws, n))
    restart = rng.random((draws, n)) < 1 / max(1.0, mean_block)
    restart[:, 0] = True
    steps = np.arange(n)
    last = np.maximum.accumulate(np.where(restart, steps, 0), axis=1)
    chosen = np.take_along_axis(starts, last, axis=1)
    return np.asarray((chosen + steps - last) % n, dtype=np.int64)


def bootstrap_ratio(
    numerators: npt.ArrayLike,
    denominators: npt.ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    seed: int = 1,
) -> Estimate:
    """Ratio of sums over a series of pieces in time, with the stationary bootstrap's interval.

    Shapes (n,) both. A ratio of sums, never a mean of ratios. None if the denominators sum to 0.
    """
    top = np.asarray(numerators, dtype=np.float64)
    bottom = np.asarray(denominators, dtype=np.float64)
    n = top.size
    if n == 0 or bottom.sum() == 0:
        return Estimate(value=None, n=n)
    value = float(top.sum() / bottom.sum())
    if n < 3:  # noqa: PLR2004 nothing to resample
        return Estimate(value=value, n=n)
    tau = autocorrelation_time(top)
    chosen = stationary_indices(n, _BLOCK_FACTOR * tau, np.random.default_rng(seed))
    sums = bottom[chosen].sum(axis=1)
    ratios = np.sort(top[chosen].sum(axis=1)[sums > 0] / sums[sums > 0])
    half = (1 - confidence) / 2
    low, high = np.quantile(ratios, [half, 1 - half], method="inverted_cdf")
    return Estimate(value=value, ci_low=float(low), ci_high=float(high), n=n, n_eff=n / tau)


def blocks_needed(spread: float, effect: float, *, limit: int = 200) -> int | None:
    """Paired blocks that find a difference of `effect` with 80 % power at 5 %.

    `spread`: standard deviation of the paired log-ratios; `effect` on the same scale. Smallest
    n >= 2 with n >= ((t.975 + t.8) spread / effect)^2. None above `limit`.
    """
    for n in range(2, limit + 1):
        reach = student_quantile(n - 1, 0.975) + student_quantile(n - 1, 0.8)
        if n >= (reach * spread / effect) ** 2:
            return n
    return None


def early_stopping_total(misses: int, p: float = 0.99, confidence: float = 0.99) -> int:
    """How many requests must be seen so that `misses` misses still prove the percentile `p`.

    MLPerf LoadGen's early stopping: smallest h with I_p(h, misses + 1) <= 1 - confidence, plus
    the misses; p=.99: 459, 662, 838 for 0, 1, 2.
    """
    from scipy.special import betainc  # noqa: PLC0415 heavy, only here

    low, high = 0, 1
    while betainc(high, misses + 1, p) > 1 - confidence:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if betainc(middle, misses + 1, p) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high + misses
