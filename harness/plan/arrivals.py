"""Due times of an open load: absolute, ascending, fixed before the run.

Each time counts from the start of its level, so that lateness never pushes the next one back.
A schedule is never rescaled to come out at a wished total: the number of arrivals in a span is
part of what is random (method.md 1.4 and 2). Where both limits are given, the first one met ends
it. Random schedules are sums kept at one arrival a second and stretched at the end: the same
stream at another rate is the same pattern, so that rates are compared on common random numbers
(method.md 2.1).
"""

import math
import random
from array import array
from collections.abc import Iterator
from itertools import accumulate, count, islice, repeat, takewhile

from harness.config import LevelConf, Shape
from harness.errors import ConfigError
from harness.plan.gamma import gamma_gap
from scenarios.streams import stream


def constant_due_s(
    rate_rps: float, *, requests: int | None = None, duration_s: float | None = None
) -> Iterator[float]:
    """Due times k / rate_rps from 0 on, below `duration_s`, at most `requests` of them, in s.

    Divided anew each time: adding up gaps would let rounding drift.
    """
    return _limited((number / rate_rps for number in count()), requests, duration_s)


def poisson_due_s(
    rate_rps: float,
    rng: random.Random,
    *,
    requests: int | None = None,
    duration_s: float | None = None,
) -> Iterator[float]:
    """Due times of a Poisson process on [0, duration_s), at most `requests` of them, in s."""
    return _limited((unit / rate_rps for unit in _unit_poisson(rng)), requests, duration_s)


def gamma_due_s(
    rate_rps: float,
    burstiness: float,
    rng: random.Random,
    *,
    requests: int | None = None,
    duration_s: float | None = None,
) -> Iterator[float]:
    """Due times with gamma gaps of shape k = `burstiness`, in s.

    Gaps have the mean 1 / rate_rps and the coefficient of variation 1 / sqrt(k): k = 1 is
    Poisson, k below 1 comes in bursts (method.md 2).
    """
    units = accumulate(gamma_gap(burstiness, rng) for _ in repeat(None))
    return _limited((unit / rate_rps for unit in units), requests, duration_s)


def ramp_due_s(
    rate_rps: float,
    rate_to_rps: float,
    rng: random.Random,
    *,
    duration_s: float,
    requests: int | None = None,
) -> Iterator[float]:
    """Due times of a Poisson process whose rate goes evenly from one rate to the other, in s.

    The cumulative rate R(t) = r0 t + (r1 - r0) t^2 / (2 D) turns it into a process of rate 1
    (time change; Cinlar 1975, "Introduction to Stochastic Processes", 4.7): arrival u of that is
    due where R(t) = u, t = 2 u / (r0 + sqrt(r0^2 + 2 u (r1 - r0) / D)), a form of the root that
    loses no digits when both rates are alike. For exploration only: the rate is different
    at every moment, so no percentile may be taken across it.
    """
    slope = (rate_to_rps - rate_rps) / duration_s
    total = (rate_rps + rate_to_rps) * duration_s / 2
    units = takewhile(lambda unit: unit < total, _unit_poisson(rng))
    due_s = (2 * u / (rate_rps + math.sqrt(rate_rps**2 + 2 * u * slope)) for u in units)
    return _limited(due_s, requests, duration_s)


def _unit_poisson(rng: random.Random) -> Iterator[float]:
    """Arrivals at rate 1 without end; gaps -ln(1 - u), the inverse of the exponential's CDF."""
    unit = 0.0
    while True:
        unit -= math.log1p(-rng.random())
        yield unit


def _limited(
    due_s: Iterator[float], requests: int | None, duration_s: float | None
) -> Iterator[float]:
    if requests is None and duration_s is None:
        raise ConfigError("load: needs load.duration_s=30 or load.requests=100, or never ends")
    if duration_s is not None:
        due_s = takewhile(lambda due: due < duration_s, due_s)
    return islice(due_s, requests)


def level_due_s(level: LevelConf, seed: str, again: int = 0) -> "array[float]":
    """Due times of an open level in s from its start, shape (n,), or of its sessions' first turns.

    Args:
        level: constant, poisson, gamma, ramp, or sessions that begin at a rate.
        seed: the plan's; every level draws from its stream `arrivals`, so that levels at
            different rates play one pattern.
        again: how many equal levels were played before; another number is another pattern.

    Raises:
        ConfigError: the level is closed, or does not say how long it is.
    """
    rate_rps = level.rate_rps
    if level.is_closed or rate_rps is None:
        raise ConfigError(f"load.shape={level.shape}: has no due times of its own")
    rng = stream(seed, "arrivals", again)
    limit = level.sessions if level.shape is Shape.SESSIONS else level.requests
    end_s = level.duration_s
    if level.shape is Shape.CONSTANT:
        due_s = constant_due_s(rate_rps, requests=limit, duration_s=end_s)
    elif level.shape is Shape.GAMMA:
        due_s = gamma_due_s(
            rate_rps, level.burstiness or 1.0, rng, requests=limit, duration_s=end_s
        )
    elif level.shape is Shape.RAMP:
        if level.rate_to_rps is None or end_s is None:
            raise ConfigError("load.shape=ramp: needs load.rate_to_rps=20 and load.duration_s=60")
        due_s = ramp_due_s(rate_rps, level.rate_to_rps, rng, requests=limit, duration_s=end_s)
    else:
        due_s = poisson_due_s(rate_rps, rng, requests=limit, duration_s=end_s)
    return array("d", due_s)
