"""How many requests each level holds; needs neither tokenizer nor prompts."""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.config import LevelConf, RunConf, ScenarioConf, Shape
from harness.errors import ConfigError
from harness.plan.answer_tokens import answer_tokens
from harness.plan.arrivals import level_due_s
from harness.plan.lanes import LaneSize, by_requests, by_time
from harness.plan.level_identity import level_identities, level_seed, plan_seed
from harness.plan.session_level import level_sessions
from harness.plan.trace_level import level_trace, trace_due_s

# No answer is done sooner than this. 2 ms a token is 500 tokens/s for one user, which is beyond
# what a server gives one stream without speculative decoding; 50 ms is the least for any answer.
FASTEST_REQUEST_S = 0.05
FASTEST_TOKEN_S = 0.002
MAX_BOUND_REQUESTS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSize:
    """The requests of a level.

    `count`: its places; `planned`: how many of them are requests (a session that is shorter than
    others leaves places empty). `is_bound`: it ends by time, and this is the most it could use.
    `span_s`: from the level's start to its last arrival or its end by time; None if it ends
    when its requests are done. `due_s`: of an open level, shape (count / turns_max,); None if
    closed. `lanes`: of a closed level. `turns`: of sessions, each of `turns_max` places.
    """

    count: int
    planned: int
    is_bound: bool = False
    span_s: float | None = None
    due_s: "array[float] | None" = None
    lanes: tuple[LaneSize, ...] = ()
    turns: Sequence[int] = ()
    turns_max: int = 1

    def due_at(self, place: int) -> float | None:
        """When the request at a place is due, in s from the level's start; None: by an answer."""
        if self.due_s is None or place % self.turns_max:
            return None
        return self.due_s[place // self.turns_max]


def level_sizes(conf: RunConf) -> list[LevelSize]:
    """The size of each level of a run, in the order they are played.

    A closed level that ends by time gets as many requests as its users could play at
    `FASTEST_TOKEN_S`; if that is above `MAX_BOUND_REQUESTS` over all levels, each gets its share.
    A level that uses all of them up says so (`Level.exhausted`).

    Raises:
        ConfigError: a level cannot be played.
    """
    levels, identities = conf.load.played_levels(), level_identities(conf)
    sizes = [
        level_size(level, conf.scenario, plan_seed(conf), identity)
        for level, identity in zip(levels, identities, strict=True)
    ]
    bounds = sum(size.count for size in sizes if size.is_bound)
    if bounds <= MAX_BOUND_REQUESTS:
        return sizes
    return [_shrunk(size, bounds) if size.is_bound else size for size in sizes]


def level_size(
    level: LevelConf, scenario: ScenarioConf, seed: str, identity: Mapping[str, Any]
) -> LevelSize:
    """The size of one level by itself, without the cap over all of them.

    Raises:
        ConfigError: nothing arrives in the time that is given.
    """
    again = int(identity["again"])
    if level.shape is Shape.SESSIONS:
        return _sessions(level, scenario, seed, identity)
    if level.shape is Shape.TRACE:
        return _open(level, trace_due_s(level, level_trace(level.trace, seed)))
    if not level.is_closed:
        return _open(level, level_due_s(level, seed, again))
    users = level.group_users or {"": level.user_count}
    if level.requests is not None:
        lanes = by_requests(users, level.requests)
        count = sum(lane.count for lane in lanes)
        return LevelSize(count=count, planned=count, lanes=lanes)
    duration_s = level.duration_s or 0.0
    each = {
        name: math.ceil(duration_s / (_fastest_s(scenario, name or None) + level.think_s))
        for name in users
    }
    lanes = by_time(users, each)
    count = sum(lane.count for lane in lanes)
    return LevelSize(count=count, planned=count, is_bound=True, span_s=duration_s, lanes=lanes)


def _fastest_s(scenario: ScenarioConf, group: str | None = None) -> float:
    return max(FASTEST_REQUEST_S, FASTEST_TOKEN_S * answer_tokens(scenario, group).mean)


def _open(level: LevelConf, due_s: "array[float]") -> LevelSize:
    if not due_s:
        raise ConfigError(
            f"load.duration_s={level.duration_s:g}: too short, nothing arrives in {level.label}; "
            "make it longer, or the rate higher"
        )
    is_whole = level.duration_s is not None and level.requests is None
    span_s = level.duration_s if is_whole else due_s[-1]
    return LevelSize(count=len(due_s), planned=len(due_s), span_s=span_s, due_s=due_s)


def _sessions(
    level: LevelConf, scenario: ScenarioConf, seed: str, identity: Mapping[str, Any]
) -> LevelSize:
    found = level_sessions(
        level,
        scenario,
        seed=seed,
        own_seed=level_seed(seed, identity),
        again=int(identity["again"]),
        turn_s=_fastest_s(scenario) + level.think_s,
    )
    if found.begin_s is not None and not found.turns:
        return _open(level, found.begin_s)
    count = len(found.turns) * scenario.turns
    is_timed = level.duration_s is not None and (found.is_bound or found.begin_s is not None)
    last_s = found.begin_s[-1] if found.begin_s else None
    return LevelSize(
        count=count,
        planned=sum(found.turns),
        is_bound=found.is_bound,
        span_s=level.duration_s if is_timed else last_s,
        due_s=found.begin_s,
        lanes=(LaneSize(users=level.user_count, count=count),) if level.is_closed else (),
        turns=found.turns,
        turns_max=scenario.turns,
    )


def _shrunk(size: LevelSize, bounds: int) -> LevelSize:
    """A bound level's share of the cap; whole sessions, and at least one request a lane."""
    each = size.turns_max
    lanes = tuple(
        replace(lane, count=max(1, lane.count // each * MAX_BOUND_REQUESTS // bounds) * each)
        for lane in size.lanes
    )
    count = sum(lane.count for lane in lanes)
    turns = size.turns[: count // each] if size.turns else ()
    planned = sum(turns) if turns else count
    return replace(size, count=count, planned=planned, lanes=lanes, turns=turns)
