"""A level of sessions: how many turns each has, when each begins, which prompt each turn is.

A session takes `turns_max` places in the level, one after another, whether it needs them or not:
so the place of a turn says its session, and a session is the same however many others there are.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from harness.config import LevelConf, ScenarioConf
from harness.plan.arrivals import level_due_s
from scenarios.streams import draw_int, stream
from scenarios.wanted import Wanted


def session_turns(scenario: ScenarioConf, seed: str) -> Iterator[int]:
    """How many turns each session has, without end: uniform on turns_min to turns."""
    low, high = scenario.turns_min or scenario.turns, scenario.turns
    for session in count():
        yield low if low == high else draw_int(stream(seed, "turns", session), low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The sessions of a level. `begin_s`: of those that begin at a rate, shape (len(turns),)."""

    turns: Sequence[int]
    begin_s: "array[float] | None" = None
    is_bound: bool = False


def level_sessions(
    level: LevelConf, scenario: ScenarioConf, *, seed: str, own_seed: str, again: int, turn_s: float
) -> Sessions:
    """The sessions that a level plays.

    Of `sessions`, `requests` and `duration_s` the first one met ends it; with `requests`, the
    session that reaches it is played to its end.

    Args:
        level: of the shape sessions.
        scenario: for the turns.
        seed: the plan's, for the times at which sessions begin.
        own_seed: the level's, for the turns.
        again: as in `level_due_s`.
        turn_s: the least time that a turn takes, think time included: bounds what users can
            play in `duration_s`.
    """
    turns = session_turns(scenario, own_seed)
    if level.requests is not None:
        turns = _reaching(turns, level.requests)
    if level.rate_rps is not None:
        begin_s = _begin_s(level, seed, again)
        played = array("L", islice(turns, len(begin_s)))
        return Sessions(turns=played, begin_s=begin_s[: len(played)])
    is_bound = level.requests is None and level.sessions is None
    most = level.sessions
    if is_bound:
        mean_turns = ((scenario.turns_min or scenario.turns) + scenario.turns) / 2
        each = math.ceil((level.duration_s or 0.0) / (turn_s * mean_turns)) + 1
        most = (level.users or 1) * each
    return Sessions(turns=array("L", islice(turns, most)), is_bound=is_bound)


def _begin_s(level: LevelConf, seed: str, again: int) -> "array[float]":
    if level.sessions is None and level.duration_s is None:  # as many as there are requests
        rate_rps = level.rate_rps
        limited = LevelConf(shape=level.shape, rate_rps=rate_rps, sessions=level.requests)
        return level_due_s(limited, seed, again)
    return level_due_s(level, seed, again)


def _reaching(turns: Iterator[int], requests: int) -> Iterator[int]:
    total = 0
    while total < requests:
        number = next(turns)
        total += number
        yield number


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSupply:
    """What is wanted of each place: a turn of a session, or nothing beyond its last turn.

    `first`: the prompt of the first place.
    """

    turns: Sequence[int]
    turns_max: int
    first: int = 0

    def wanted(self, place: int) -> Wanted | None:
        """Turn `place % turns_max` of session `place // turns_max`; None: it has no such turn."""
        session, turn = divmod(place, self.turns_max)
        if turn >= self.turns[session]:
            return None
        return Wanted(index=self.first + place, session=session, turn=turn)
