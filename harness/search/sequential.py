"""Wald's sequential test: does a rate meet the SLO often enough? Ends as early as the data allow.

H1: the attainment is at least `high_ratio`; H0: it is at most `low_ratio`. Each good request adds
ln(a1 / a0), each other one ln((1 - a1) / (1 - a0)); H1 is accepted at ln((1 - b) / a), H0 at
ln(b / (1 - a)), with a = b the error allowed (method.md 2.1; Wald 1945).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.analysis.stats import autocorrelation_time

_LEAST_FOR_TAU = 20
_NARROW_FROM = 0.95
_STEP = 0.05


def default_low_ratio(high_ratio: float) -> float:
    """The attainment to tell the SLO's from: .99 against .98, .95 against .90, .90 against .85."""
    if high_ratio <= _NARROW_FROM:
        return max(high_ratio - _STEP, high_ratio / 2)
    return 1 - 2 * (1 - high_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialTest:
    """The test at one rate. `error_ratio`: the probability of being wrong, either way."""

    high_ratio: float
    low_ratio: float
    error_ratio: float

    @property
    def _hit(self) -> float:
        return math.log(self.high_ratio / self.low_ratio)

    @property
    def _miss(self) -> float:
        if self.high_ratio >= 1:
            return -math.inf
        return math.log((1 - self.high_ratio) / (1 - self.low_ratio))

    @property
    def _bound(self) -> float:
        return math.log((1 - self.error_ratio) / self.error_ratio)

    def decide(self, good: Sequence[bool]) -> bool | None:
        """True: the rate passes; False: it fails; None: more requests are needed.

        `good`: requests in due order, each as soon as it is known. Misses come in clusters, so the
        sum is divided by the autocorrelation time of the indicator, as if there were n / tau.
        """
        hits = sum(good)
        misses = len(good) - hits
        total = hits * self._hit + (misses * self._miss if misses else 0.0)
        if misses > 0 and len(good) >= _LEAST_FOR_TAU and math.isfinite(total):
            total /= max(1.0, autocorrelation_time(np.asarray(good, dtype=np.float64)))
        if total >= self._bound:
            return True
        return False if total <= -self._bound else None

    def expected_n(self) -> int:
        """Requests that the test needs on average, at the worse of the two hypotheses."""
        a1, a0, error, bound = self.high_ratio, self.low_ratio, self.error_ratio, self._bound
        drift = (1 - 2 * error) * bound
        if a1 >= 1:
            return math.ceil(bound / self._hit)
        up = drift / (a1 * self._hit + (1 - a1) * self._miss)
        down = drift / -(a0 * self._hit + (1 - a0) * self._miss)
        return math.ceil(max(up, down))
