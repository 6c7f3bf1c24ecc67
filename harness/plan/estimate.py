"""What a sweep will take, before anything starts: requests, time, disk and money, in bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.config import RunConf, Shape
from harness.plan.bounds import NOTHING, Bounds, total
from harness.plan.level_estimate import LevelEstimate, level_estimate, search_estimate
from harness.plan.sizes import level_sizes

__all__ = ["Bounds", "PlanEstimate", "estimate"]

_LEAST_START_S = 2.0
_LEAST_WARMUP_S = 1.0
# Measured on the journal (design.md 3): 235 to 300 bytes of raw answer a token. Tables: two
# numbers a chunk (stamp, tokens), compressed, and about forty columns a request.
_RAW_BYTES_PER_TOKEN = (235, 300)
_TABLE_BYTES_PER_TOKEN = (4, 12)
_TABLE_BYTES_PER_REQUEST = (100, 500)
_CONFIRMED_RATES = 2  # the one that was found, and one above it that must fail


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """What a sweep will take.

    `jobs`: engine starts, those that confirm a search left out. `minutes`: wall clock, engines
    one after another, installing left out. `disk_bytes`: raw journal and tables. `money`:
    currency to bounds, for those jobs whose hardware has a price; None if none has.
    """

    jobs: int
    requests: Bounds
    minutes: Bounds
    disk_bytes: Bounds
    money: Mapping[str, Bounds] | None = field(default=None)


def estimate(jobs: Sequence[RunConf]) -> PlanEstimate:
    """Add up jobs, each one engine start with all its levels; blocks are jobs of their own.

    Starts nothing; reads a trace that a job replays. The time of a level that ends by time is
    known but for its drain; of one that ends by requests it lies between 2 ms and 250 ms a token;
    of a search it is at most `probes_max` rates of `probe_max_s`, and its confirmation.

    Raises:
        ConfigError: a level cannot be played.
    """
    requests = minutes = disk_bytes = NOTHING
    money: dict[str, Bounds] = {}
    for conf in jobs:
        levels = _levels(conf)
        job_minutes = _job_s(conf, levels).times(1 / 60)
        requests = requests.plus(total(level.requests for level in levels))
        minutes = minutes.plus(job_minutes)
        disk_bytes = disk_bytes.plus(total(_disk_bytes(level) for level in levels))
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


def _levels(conf: RunConf) -> list[LevelEstimate]:
    if conf.load.shape is not Shape.SEARCH:
        levels = zip(conf.load.played_levels(), level_sizes(conf), strict=True)
        return [level_estimate(conf, level, size) for level, size in levels]
    found, search = search_estimate(conf), conf.load.search
    if search.confirm_rates:  # it is itself a run that confirms
        return [found]
    share = search.confirm_runs * _CONFIRMED_RATES / search.probes_max
    confirmed = LevelEstimate(  # as long as so many probes; a search that fails confirms nothing
        requests=Bounds(low=0.0, high=found.requests.high * share),
        seconds=Bounds(low=0.0, high=found.seconds.high * share),
        output_tokens=Bounds(low=0.0, high=found.output_tokens.high * share),
    )
    return [found, confirmed]


def _job_s(conf: RunConf, levels: Sequence[LevelEstimate]) -> Bounds:
    start = Bounds(low=_LEAST_START_S, high=conf.engine.ready_timeout_s)
    warmup = Bounds(low=_LEAST_WARMUP_S, high=conf.warmup.max_s)
    stop = Bounds(low=0.0, high=conf.engine.stop_timeout_s)
    server = total([start, warmup, stop])
    again = NOTHING
    if conf.load.shape is Shape.SEARCH:
        search = conf.load.search
        starts = 0 if search.confirm_rates else search.confirm_runs
        again = Bounds(low=0.0, high=server.high * starts)
    return total([server, again, *(level.seconds for level in levels)])


def _disk_bytes(level: LevelEstimate) -> Bounds:
    ends = []
    for end, (count, tokens) in enumerate(
        (
            (level.requests.low, level.output_tokens.low),
            (level.requests.high, level.output_tokens.high),
        )
    ):
        per_token = _RAW_BYTES_PER_TOKEN[end] + _TABLE_BYTES_PER_TOKEN[end]
        ends.append(tokens * per_token + count * _TABLE_BYTES_PER_REQUEST[end])
    return Bounds(low=ends[0], high=ends[1])
