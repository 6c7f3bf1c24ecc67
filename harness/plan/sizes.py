"""How many requests each level holds; needs neither tokenizer nor prompts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.config import LevelConf, RunConf
from harness.plan.arrivals import level_due_s

# No answer is done sooner than this. 2 ms a token is 500 tokens/s for one user, which is beyond
# what a server gives one stream without speculative decoding; 50 ms is the least for any answer.
FASTEST_REQUEST_S = 0.05
FASTEST_TOKEN_S = 0.002
MAX_BOUND_REQUESTS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelCount:
    """Requests of a level. `is_bound`: it ends by time, and this is the most it could use.

    `span_s`: from the level's start to its last arrival or its end by time; None if it ends
    when its requests are done. `due_s`: of an open level, shape (count,); None if closed.
    """

    count: int
    is_bound: bool
    span_s: float | None
    due_s: Sequence[float] | None = None


def plan_seed(conf: RunConf) -> str:
    """The seed of a block's streams: blocks of one sweep never play the same prompts."""
    return f"{conf.seed}:{conf.block}"


def level_counts(conf: RunConf) -> list[LevelCount]:
    """The size of each level of a run, in the order they are played.

    A closed level that ends by time gets as many requests as its users could play at
    `FASTEST_TOKEN_S`; if that is above `MAX_BOUND_REQUESTS` over all levels, each gets its share.
    A level that uses all of them up says so (`Level.exhausted`).
    """
    seed = plan_seed(conf)
    counts = [
        _count(level, conf.scenario.output_tokens, seed, number)
        for number, level in enumerate(conf.load.played_levels())
    ]
    bounds = sum(size.count for size in counts if size.is_bound)
    if bounds <= MAX_BOUND_REQUESTS:
        return counts
    return [
        LevelCount(
            count=max(1, size.count * MAX_BOUND_REQUESTS // bounds),
            is_bound=True,
            span_s=size.span_s,
        )
        if size.is_bound
        else size
        for size in counts
    ]


def _count(level: LevelConf, output_tokens: int, seed: str, number: int) -> LevelCount:
    if not level.is_closed:
        due_s = level_due_s(level, seed, number)
        span_s = level.duration_s if level.requests is None else (due_s[-1] if due_s else 0.0)
        return LevelCount(count=len(due_s), is_bound=False, span_s=span_s, due_s=due_s)
    if level.requests is not None:
        return LevelCount(count=level.requests, is_bound=False, span_s=None)
    duration_s, users = level.duration_s or 0.0, level.users or 1
    fastest_s = max(FASTEST_REQUEST_S, FASTEST_TOKEN_S * output_tokens) + level.think_s
    return LevelCount(
        count=users * math.ceil(duration_s / fastest_s), is_bound=True, span_s=duration_s
    )
