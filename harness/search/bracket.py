"""Which rate to try next: a bracket between the highest pass and the lowest fail, halved in ratio.

It begins with two guesses. A guess is only tried when the bracket has closed in on it, so that no
time is spent where the answer is clear; if it turns out wrong, the bracket moves on beyond it.
"""

import math
from dataclasses import dataclass

_BEYOND = 2.0  # a wrong guess moves by so much
_LEAST_PROBES = 3


@dataclass(slots=True, kw_only=True)
class Bracket:
    """`low_rps`, `high_rps`: its ends; `is_low_known`, `is_high_known`: tried, not guessed.

    `ratio`: it is closed when both ends are known and differ by at most this.
    """

    low_rps: float
    high_rps: float
    ratio: float
    is_low_known: bool = False
    is_high_known: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether the answer is as narrow as was asked."""
        return self.is_low_known and self.is_high_known and self._is_narrow

    @property
    def _is_narrow(self) -> bool:
        return self.high_rps / self.low_rps <= self.ratio * (1 + 1e-9)

    def next_rps(self) -> float | None:
        """The rate to try now; None if the bracket is closed."""
        if self.is_closed:
            return None
        if not self._is_narrow:
            return math.sqrt(self.low_rps * self.high_rps)
        return self.high_rps if self.is_low_known else self.low_rps

    def take(self, rate_rps: float, *, has_passed: bool) -> None:
        """Note how a rate came out."""
        if has_passed:
            self.low_rps, self.is_low_known = max(rate_rps, self.low_rps), True
            if self.high_rps <= self.low_rps:  # it was a guess, and too low
                self.high_rps, self.is_high_known = self.low_rps * _BEYOND, False
        else:
            self.high_rps, self.is_high_known = min(rate_rps, self.high_rps), True
            if self.low_rps >= self.high_rps:
                self.low_rps, self.is_low_known = self.high_rps / _BEYOND, False

    def expected_probes(self) -> int:
        """How many rates will be tried if the guesses hold, for sharing out the error."""
        steps = math.log(self.high_rps / self.low_rps) / math.log(self.ratio)
        return max(_LEAST_PROBES, math.ceil(math.log2(max(steps, 1.0))) + 1)
