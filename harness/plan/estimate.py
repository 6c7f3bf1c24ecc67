"""What a sweep will take, before anything starts: requests, time, disk and money, in bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.config import RunConf
from harness.plan.sizes import FASTEST_REQUEST_S, FASTEST_TOKEN_S, LevelCount, level_counts

# A stream at 4 tokens/s is slower than people read; slower engines are cut off by the time-outs.
_SLOWEST_TOKEN_S = 0.25
_SLOWEST_PROMPT_TOKEN_S = 0.02
_LEAST_START_S = 2.0
_LEAST_WARMUP_S = 1.0
# Measured on the journal (design.md 3): 235 to 300 bytes of raw answer a token. Tables: two
# numbers a chunk (stamp, tokens), compressed, and about forty columns a request.
_RAW_BYTES_PER_TOKEN = (235, 300)
_TABLE_BYTES_PER_TOKEN = (4, 12)
_TABLE_BYTES_PER_REQUEST = (100, 500)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """What a sweep will take.

    `jobs`: engine starts. `minutes`: wall clock, engines one after another, installing left out.
    `disk_bytes`: raw journal and tables. `money`: currency to bounds, for those jobs whose
    hardware has a price; None if none has.
    """

    jobs: int
    requests: Bounds
    minutes: Bounds
    disk_bytes: Bounds
    money: Mapping[str, Bounds] | None = field(default=None)


def estimate(jobs: Sequence[RunConf]) -> PlanEstimate:
    """Add up jobs, each one engine start with all its levels; blocks are jobs of their own.

    Starts nothing, reads no file. The time of a level that ends by time is known but for its
    drain; of one that ends by requests it lies between 2 ms and 250 ms a token.

    Raises:
        ConfigError: a level cannot be played.
    """
    requests = minutes = disk_bytes = NOTHING
    money: dict[str, Bounds] = {}
    for conf in jobs:
        sizes = level_counts(conf)
        job_requests = _sum([_requests(conf, k, size) for k, size in enumerate(sizes)])
        job_minutes = _job_s(conf, sizes).times(1 / 60)
        requests = requests.plus(job_requests)
        minutes = minutes.plus(job_minutes)
        disk_bytes = disk_bytes.plus(_disk_bytes(conf, job_requests))
        price = conf.hardware.price
        if price.per_hour is not None and price.currency is not None:
            so_far = money.get(price.currency, NOTHING)
            money[price.currency] = so_far.plus(job_minutes.times(price.per_hour / 60))
    return PlanEstimate(
        jobs=len(jobs),
        requests=requests,
        minutes=minutes,
        disk_bytes=disk_bytes,
        money=money or None,
    )


def _sum(parts: Sequence[Bounds]) -> Bounds:
    return Bounds(low=sum(part.low for part in parts), high=sum(part.high for part in parts))


def _request_s(conf: RunConf) -> Bounds:
    """Sent to ended, of one request."""
    shortest = conf.scenario.output_tokens_min or conf.scenario.output_tokens
    slowest_s = (
        _SLOWEST_TOKEN_S * conf.scenario.output_tokens
        + _SLOWEST_PROMPT_TOKEN_S * conf.scenario.input_tokens
    )
    return Bounds(
        low=max(FASTEST_REQUEST_S, FASTEST_TOKEN_S * shortest),
        high=min(slowest_s, conf.load.request_timeout_s),
    )


def _requests(conf: RunConf, number: int, size: LevelCount) -> Bounds:
    if not size.is_bound:
        return Bounds(low=size.count, high=size.count)
    level = conf.load.played_levels()[number]
    slowest_s = _request_s(conf).high + level.think_s
    fewest = (level.users or 1) * max(1.0, (size.span_s or 0.0) // slowest_s)
    return Bounds(low=min(fewest, size.count), high=size.count)


def _job_s(conf: RunConf, sizes: Sequence[LevelCount]) -> Bounds:
    start = Bounds(low=_LEAST_START_S, high=conf.engine.ready_timeout_s)
    warmup = Bounds(low=_LEAST_WARMUP_S, high=conf.warmup.max_s)
    stop = Bounds(low=0.0, high=conf.engine.stop_timeout_s)
    levels = [_level_s(conf, number, size) for number, size in enumerate(sizes)]
    return _sum([start, warmup, stop, *levels])


def _level_s(conf: RunConf, number: int, size: LevelCount) -> Bounds:
    level, request_s = conf.load.played_levels()[number], _request_s(conf)
    if size.span_s is not None:
        drain_s = min(request_s.high, conf.load.drain_timeout_s)
        span = Bounds(low=size.span_s, high=size.span_s + drain_s)
    else:
        rounds = -(-size.count // (level.users or 1))
        think_s = level.think_s * rounds
        span = request_s.times(rounds).plus(Bounds(low=think_s, high=think_s))
    return span.plus(Bounds(low=conf.load.settle_s, high=conf.load.settle_s))


def _disk_bytes(conf: RunConf, requests: Bounds) -> Bounds:
    shortest = conf.scenario.output_tokens_min or conf.scenario.output_tokens
    ends = []
    for end, (count, tokens) in enumerate(
        ((requests.low, shortest), (requests.high, conf.scenario.output_tokens))
    ):
        per_token = _RAW_BYTES_PER_TOKEN[end] + _TABLE_BYTES_PER_TOKEN[end]
        ends.append(count * (tokens * per_token + _TABLE_BYTES_PER_REQUEST[end]))
    return Bounds(low=ends[0], high=ends[1])
