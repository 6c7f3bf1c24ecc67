"""Percentiles with intervals that hold for few, dependent and censored samples.

Percentiles are inverse-CDF order statistics. Their intervals are exact binomial ranks at the
effective sample size (method: order statistics; a bootstrap of a P99 covers 88 % where 95 % is
promised, and 47 % under autocorrelation). scipy is imported only where it is used: this module
itself loads in the time of numpy.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.types import Estimate

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
_RHO_STOP = 0.05  # autocorrelation below this is noise; the sum ends there
_TAU_SAMPLES = 1 << 20  # tau is read from at most so many consecutive samples
_MEDIAN = 0.5


def rank(n: int, p: float) -> int:
    """1-based rank of the inverse-CDF percentile, ceil(n p), for n >= 1 and 0 < p <= 1."""
    return min(n, max(1, math.ceil(n * p - 1e-9)))


def percentile(values: npt.ArrayLike, p: float) -> float | None:
    """Smallest sample with at least `p` of the samples at or below it; None if there is none.

    `values`: shape (n,); +inf marks a censored sample. Never above the maximum.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        return None
    k = rank(sample.size, p) - 1
    return float(np.partition(sample, k)[k])


def order_ranks(n: int, p: float, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """1-based ranks (l, u) whose samples enclose the percentile with at least `confidence`.

    l: largest with P(B < l) <= alpha/2; u: smallest with P(B >= u) <= alpha/2; B ~ Bin(n, p).
    None if the sample is too small for both (Hahn and Meeker, Statistical Intervals).
    """
    if n < minimum_n(p, confidence):
        return None
    from scipy.special import bdtr  # noqa: PLC0415 heavy, only here

    half = (1 - confidence) / 2
    reach = 12 * math.sqrt(n * p * (1 - p)) + 12  # beyond it the tails are below 1e-30
    start = max(0, math.floor(n * p - reach))
    k = np.arange(start, min(n, math.ceil(n * p + reach)), dtype=np.float64)
    cdf = bdtr(k, np.int64(n), p)  # P(B <= k)
    low = start + int(np.searchsorted(cdf, half, side="right"))
    high = start + int(np.searchsorted(cdf, 1 - half - 1e-12, side="left")) + 1
    return low, high


def minimum_n(p: float, confidence: float = CONFIDENCE) -> int:
    """How many independent samples a two-sided interval of this percentile needs.

    P90 36, P95 72, P99 368 and P99.9 3,688 at 95 %: max(p, 1 - p)^n <= alpha/2.
    """
    return math.ceil(math.log((1 - confidence) / 2) / math.log(max(p, 1 - p)))


def autocorrelation_time(indicator: npt.ArrayLike) -> float:
    """Give tau = 1 + 2 sum of rho_k, the sum ending where rho_k < 0.05; at least 1.

    `indicator`: shape (n,), in the order in which the samples were due.
    """
    series = np.asarray(indicator, dtype=np.float64)[:_TAU_SAMPLES]
    n = series.size
    centred = series - series.mean() if n else series
    variance = float(centred @ centred)
    if n < 3 or variance <= 0:  # noqa: PLR2004 no lag to look at
        return 1.0
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    power = (spectrum * spectrum.conj()).real
    rho = np.fft.irfft(power, size)[1:n] / variance
    below = np.flatnonzero(rho < _RHO_STOP)
    stop = int(below[0]) if below.size else rho.size
    return float(min(n, 1 + 2 * rho[:stop].sum()))


def effective_n(indicators: Sequence[npt.ArrayLike]) -> float:
    """Effective samples behind the share of ones in `indicators`, one array a run.

    The smaller of: n/tau summed over the runs (dependence within a run), and n over the design
    effect, the variance of the share between runs over its binomial variance (dependence
    through the run: Kish, Survey Sampling). Never above n.
    """
    runs = [np.asarray(run, dtype=np.float64) for run in indicators if np.size(run)]
    n = sum(run.size for run in runs)
    if n == 0:
        return 0.0
    within = sum(run.size / autocorrelation_time(run) for run in runs)
    return float(min(n, within, n / _design_effect(runs, n)))


def _design_effect(runs: Sequence[Floats], n: int) -> float:
    share = sum(float(run.sum()) for run in runs) / n
    binomial = share * (1 - share) / n
    if len(runs) < 2 or binomial <= 0:  # noqa: PLR2004 one run shows no spread
        return 1.0
    spread = sum((run.size / n) ** 2 * (float(run.mean()) - share) ** 2 for run in runs)
    between = spread * len(runs) / (len(runs) - 1)
    return max(1.0, between / binomial)


def estimate_percentile(
    samples: Sequence[npt.ArrayLike],
    p: float,
    *,
    floors: Sequence[npt.ArrayLike] | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """A percentile of all runs together, with its interval.

    `samples`: one array a run, in due order, +inf where a request was cut off. `floors`: the
    same shape, what is known of a sample at least (the age of one that was cut off). A value
    that falls on a cut-off sample is `censored`: then it is a lower bound and `ci_high` is
    +inf. Above the median, the value is None unless the effective sample carries an interval;
    `needed` says how many samples would.
    """
    runs = [np.asarray(run, dtype=np.float64) for run in samples]
    pooled = np.concatenate(runs) if runs else np.empty(0)
    n = pooled.size
    if n == 0:
        return Estimate(value=None)
    needed = minimum_n(p, confidence)
    if n < needed and p > _MEDIAN:
        return Estimate(value=None, n=n, needed=needed)
    raw = float(np.partition(pooled, rank(n, p) - 1)[rank(n, p) - 1])
    n_eff = effective_n([run > raw for run in runs])
    if n >= needed:  # enough if they were independent
        needed = math.ceil(needed * n / n_eff)
    ranks = order_ranks(math.floor(n_eff + 1e-9), p, confidence)
    if ranks is None and p > _MEDIAN:
        return Estimate(value=None, n=n, n_eff=n_eff, needed=needed)
    known = pooled
    if floors is not None:
        ages = np.concatenate([np.asarray(run, dtype=np.float64) for run in floors])
        known = np.where(np.isinf(pooled), ages, pooled)
    value, is_cut = _bounded(pooled, known, rank(n, p))
    low, high = _rank_values(pooled, known, ranks, math.floor(n_eff + 1e-9))
    return Estimate(
        value=value, ci_low=low, ci_high=high, n=n, n_eff=n_eff, needed=needed, censored=is_cut
    )


def _bounded(sample: Floats, known: Floats, k: int) -> tuple[float, bool]:
    value = float(np.partition(sample, k - 1)[k - 1])
    if math.isfinite(value):
        return value, False
    finite = known[np.isfinite(known)]
    if finite.size == 0:
        return math.inf, True
    k = min(k, finite.size)
    return float(np.partition(finite, k - 1)[k - 1]), True


def _rank_values(
    sample: Floats, known: Floats, ranks: tuple[int, int] | None, size: int
) -> tuple[float | None, float | None]:
    if ranks is None:
        return None, None
    n = sample.size
    low_k = max(1, math.floor(ranks[0] * n / size))
    high_k = min(n, math.ceil(ranks[1] * n / size))
    return _bounded(sample, known, low_k)[0], float(np.partition(sample, high_k - 1)[high_k - 1])
