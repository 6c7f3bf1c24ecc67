"""One level of a plan: which requests it plays, when they are due, what they are made of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.config import LevelConf, ScenarioConf, Shape
from harness.plan.lanes import LaneSize, LaneSupply
from harness.plan.requests import PlainSupply, Supply, make_requests
from harness.plan.session_level import SessionSupply
from harness.plan.sizes import LevelSize
from harness.plan.tokenizer import Tokenizer
from harness.plan.trace_level import TraceSupply, level_trace, played_trace
from harness.types import Request
from scenarios.wanted import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLevel:
    """One level: requests `first_index` to `first_index + count - 1`, not all of them played.

    `number`: its place among the measured levels. `seed`: of its prompts. `sha256`: of what
    makes its requests and due times, however many are played. `trace`: what was done to a
    replayed trace. `is_bound`: a closed level that ends by time; `count` is more than it can use.
    """

    number: int
    level: LevelConf
    first_index: int
    size: LevelSize
    seed: str
    sha256: str
    scenario: ScenarioConf = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    supply: Supply = field(repr=False)
    trace: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        """Its places: indices that it takes of the run's."""
        return self.size.count

    @property
    def planned(self) -> int:
        """Requests that it has."""
        return self.size.planned

    @property
    def is_bound(self) -> bool:
        """Whether it ends by time, and its requests are more than it can use."""
        return self.size.is_bound

    @property
    def due_s(self) -> "Sequence[float] | None":
        """Due times in s from the level's start, of an open level; of sessions their begins."""
        return self.size.due_s

    @property
    def lanes(self) -> tuple[LaneSize, ...]:
        """Of a closed level: its users, and how many places each lane has, in order of index."""
        return self.size.lanes

    def requests(self) -> Iterator[Request]:
        """The level's requests in order of index, made as they are asked for.

        Places that are never played are left out: of sessions that are shorter than others.
        """
        made = make_requests(self.scenario, self.tokenizer, self.seed, self._asked())
        for request in made:
            due_s = self.size.due_at(request.index - self.first_index)
            yield request if due_s is None else replace(request, due_s=due_s)

    def _asked(self) -> Iterator[tuple[int, Wanted]]:
        for place in range(self.size.count):
            wanted = self.supply.wanted(place)
            if wanted is not None:
                yield self.first_index + place, wanted

    def describe(self) -> dict[str, Any]:
        """The level for `plans/<hash>.json`: its name, its hash, and which requests it plays."""
        told = {
            "level": self.level.label,
            "level_sha256": self.sha256,
            "seed": self.seed,
            "first_index": self.first_index,
            "count": self.count,
            "planned": self.planned,
            "is_bound": self.is_bound,
        }
        return told if self.trace is None else {**told, "trace": self.trace}


def level_supply(
    level: LevelConf, size: LevelSize, scenario: ScenarioConf, seed: str, *, first_prompt: int = 0
) -> Supply:
    """What is wanted of each place of a level.

    Args:
        level: of any shape but levels and search.
        size: its size.
        scenario: decides whether a trace's lengths count.
        seed: the plan's, for a trace that is thinned.
        first_prompt: the prompt of the first place.
    """
    if level.shape is Shape.TRACE:
        return TraceSupply(
            trace=level_trace(level.trace, seed), scenario=scenario, first=first_prompt
        )
    if level.shape is Shape.SESSIONS:
        return SessionSupply(turns=size.turns, turns_max=size.turns_max, first=first_prompt)
    if level.group_users:
        return LaneSupply(lanes=size.lanes, first=first_prompt)
    return PlainSupply(first=first_prompt)


def level_trace_facts(
    level: LevelConf, size: LevelSize, scenario: ScenarioConf, seed: str
) -> Mapping[str, Any] | None:
    """`Level.trace` of a level that replays one; None for others."""
    if level.shape is not Shape.TRACE:
        return None
    return played_trace(level_trace(level.trace, seed), scenario, size.count)
