"""Due times of an open load: absolute, ascending, fixed before the run.

Each time counts from the start of its level, so that lateness never pushes the next one back.
A schedule is never rescaled to come out at a wished total: the number of arrivals in a span is
part of what is random (method.md 1.4 and 2). Both limits may be given; the first one met ends it.
"""

import math
import random
from array import array
from collections.abc import Iterator, Sequence
from itertools import count, takewhile

from harness.config import LevelConf, Shape
from harness.errors import ConfigError
from scenarios.streams import stream


def constant_due_s(
    rate_rps: float, *, requests: int | None = None, duration_s: float | None = None
) -> Iterator[float]:
    """Due times k / rate_rps from 0 on, below `duration_s`, at most `requests` of them, in s.

    Divided anew each time: adding up gaps would let rounding drift.
    """
    numbers = iter(range(requests)) if requests is not None else count()
    return _before(duration_s, (number / rate_rps for number in numbers), requests)


def poisson_due_s(
    rate_rps: float,
    rng: random.Random,
    *,
    requests: int | None = None,
    duration_s: float | None = None,
) -> Iterator[float]:
    """Due times of a Poisson process on [0, duration_s), at most `requests` of them, in s.

    Gaps are -ln(1 - u) / rate with u uniform on [0, 1) (inverse of the exponential's CDF). The
    sum is kept at rate 1 and divided at the end: the same stream at another rate is the same
    pattern, stretched, so that rates are compared on common random numbers (method.md 2.1).
    """
    numbers = iter(range(requests)) if requests is not None else count()
    return _before(duration_s, _unit_poisson(rate_rps, rng, numbers), requests)


def _unit_poisson(rate_rps: float, rng: random.Random, numbers: Iterator[int]) -> Iterator[float]:
    unit = 0.0
    for _ in numbers:
        unit -= math.log1p(-rng.random())
        yield unit / rate_rps


def _before(
    duration_s: float | None, due_s: Iterator[float], requests: int | None
) -> Iterator[float]:
    if duration_s is None:
        if requests is None:
            raise ConfigError("load: needs load.duration_s=30 or load.requests=100, or never ends")
        return due_s
    return takewhile(lambda due: due < duration_s, due_s)


def level_due_s(level: LevelConf, seed: str, number: int) -> Sequence[float]:
    """Due times of open level `number` in s from its start, from the stream `arrivals:number`.

    Raises:
        ConfigError: the level is closed, or does not say how long it is.
    """
    rate_rps = level.rate_rps
    if level.is_closed or rate_rps is None:
        raise ConfigError(f"load.shape={level.shape}: a closed load has no due times")
    if level.shape is Shape.CONSTANT:
        due_s = constant_due_s(rate_rps, requests=level.requests, duration_s=level.duration_s)
    else:
        rng = stream(seed, "arrivals", number)
        due_s = poisson_due_s(rate_rps, rng, requests=level.requests, duration_s=level.duration_s)
    return array("d", due_s)
