"""How sure a share of good requests is: exact binomial bounds, and how many requests are needed.

Clopper and Pearson 1934: the bounds are quantiles of the beta distribution. They hold for any
sample size, which the normal approximation does not for shares near 1.
"""

import math
from functools import lru_cache

from harness.types import Estimate

ALPHA = 0.05  # two-sided: each bound errs in 2.5 % of cases
MAX_NEEDED = 1_000_000


@lru_cache(maxsize=4096)
def share_bounds(good: float, n: float, alpha: float = ALPHA) -> tuple[float, float]:
    """Exact bounds of a share: `good` of `n`, which may be fractional (an effective n).

    (0, 1) without any request.
    """
    from scipy.special import betaincinv  # noqa: PLC0415 -- only where a bound is needed

    if n <= 0:
        return 0.0, 1.0
    low = 0.0 if good <= 0 else float(betaincinv(good, n - good + 1, alpha / 2))
    high = 1.0 if good >= n else float(betaincinv(good + 1, n - good, 1 - alpha / 2))
    return low, high


def attainment(good: int, n: int, n_eff: float | None) -> Estimate:
    """Share of good among scheduled requests, its bounds taken at the effective sample size.

    `n_eff`: None where it is not known; the requests then count as independent.
    """
    if n <= 0:
        return Estimate(value=None)
    share = good / n
    size = float(n) if n_eff is None else min(float(n), n_eff)
    low, high = share_bounds(share * size, size)
    return Estimate(value=share, ci_low=low, ci_high=high, n=n, n_eff=size)


def requests_needed(share: float, target: float) -> int | None:
    """Requests whose bounds would leave `target` outside, if the share stays as it is.

    None if no sample settles it (share equal to the target) or it would take over a million.
    """
    n = 1
    while n <= MAX_NEEDED:
        if _settles(share, n, target):
            return _smallest(share, target, n // 2, n)
        n *= 2
    return None


def _settles(share: float, n: int, target: float) -> bool:
    low, high = share_bounds(share * n, float(n))
    return low >= target or high < target


def _smallest(share: float, target: float, too_few: int, enough: int) -> int:
    while enough - too_few > 1:
        middle = math.floor((too_few + enough) / 2)
        if _settles(share, middle, target):
            enough = middle
        else:
            too_few = middle
    return enough
