"""Gamma-distributed gaps, drawn from `random()` alone.

`random.gammavariate` would be shorter, but Python promises the same values from version to
version only for `random()`, and a plan must come out the same for every reader of a result.
"""

import math
import random

_THIRD = 1 / 3


def gamma_gap(shape: float, rng: random.Random) -> float:
    """One gap with mean 1 and coefficient of variation 1 / sqrt(shape); `shape` > 0.

    Gamma(shape) / shape. Below a shape of 1: Gamma(k) = Gamma(k + 1) * U^(1/k) (Marsaglia and
    Tsang 2000, "A simple method for generating gamma variables", ACM TOMS 26, section 6).
    """
    if shape < 1:
        return _gamma(shape + 1, rng) * math.pow(1 - rng.random(), 1 / shape) / shape
    return _gamma(shape, rng) / shape


def _gamma(shape: float, rng: random.Random) -> float:
    """Gamma(shape, 1) for a shape of 1 or more, by the method of Marsaglia and Tsang 2000."""
    d = shape - _THIRD
    c = 1 / math.sqrt(9 * d)
    while True:
        x = _normal(rng)
        v = (1 + c * x) ** 3
        if v > 0 and math.log(1 - rng.random()) < x * x / 2 + d - d * v + d * math.log(v):
            return d * v


def _normal(rng: random.Random) -> float:
    """A standard normal number (Box and Muller 1958); its twin is not used."""
    radius = math.sqrt(-2 * math.log(1 - rng.random()))
    return radius * math.cos(2 * math.pi * rng.random())
