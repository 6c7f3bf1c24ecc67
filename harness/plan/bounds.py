"""A figure that is not known yet: from the least to the most that it can be."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """From the least to the most; both ends are possible, neither is likely."""

    low: float
    high: float

    def plus(self, other: "Bounds") -> "Bounds":
        """The bounds of a sum."""
        return Bounds(low=self.low + other.low, high=self.high + other.high)

    def times(self, factor: float) -> "Bounds":
        """The bounds of a multiple; `factor` >= 0."""
        return Bounds(low=self.low * factor, high=self.high * factor)


NOTHING = Bounds(low=0.0, high=0.0)


def exactly(value: float) -> Bounds:
    """The bounds of a figure that is known."""
    return Bounds(low=value, high=value)


def total(parts: Iterable[Bounds]) -> Bounds:
    """The bounds of the sum of many."""
    kept = list(parts)
    return Bounds(low=sum(part.low for part in kept), high=sum(part.high for part in kept))
