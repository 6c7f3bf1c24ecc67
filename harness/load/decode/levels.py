"""The rows of a run's levels: what each was meant to be, and how it was played."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from harness.load.journal import Entry, json_payload
from harness.types import ClientFacts, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedLevel:
    """What a level was meant to be, for its row in `run.json`.

    `trace`: what was done to a replayed trace. `plan_sha256`: what makes its requests and due
    times, however many of them are played.
    """

    name: str
    shape: str
    users: int | None = None
    rate_rps: float | None = None
    is_warmup: bool = False
    planned: int = 0
    think_s: float = 0.0
    trace: Mapping[str, Any] | None = None
    plan_sha256: str | None = None


@dataclass(slots=True, kw_only=True)
class LevelRows:
    """Collects the journal's words on levels. `levels`: by number, the warm-up included."""

    levels: Sequence[PlayedLevel]
    _begun: dict[int, float] = field(default_factory=dict)
    _ends: dict[int, tuple[float, Mapping[str, Any]]] = field(default_factory=dict)

    def begin(self, entry: Entry) -> None:
        """A LEVEL_BEGIN entry."""
        self._begun[int(entry.extra)] = entry.t_s

    def begun_s(self, number: int) -> float | None:
        """When a level began, absolute; None: it has not."""
        return self._begun.get(number)

    def end(self, entry: Entry) -> None:
        """A LEVEL entry."""
        self._ends[int(entry.extra)] = (entry.t_s, json_payload(entry))

    def row_of(self, number: int) -> int:
        """The level's row among the measured ones; -1 for the warm-up."""
        if self.levels[number].is_warmup:
            return -1
        return sum(not level.is_warmup for level in self.levels[:number])

    def rows(self, zero_s: float, last_s: float) -> Iterator[Level]:
        """A row for each measured level that was begun.

        One without an end was cut: the load process died, and its window reaches to `last_s`,
        the last thing that the journal knows.
        """
        for number, level in enumerate(self.levels):
            begun_s = self._begun.get(number)
            if level.is_warmup or (number not in self._ends and begun_s is None):
                continue
            cut = {"start_s": begun_s, "window_end_s": last_s, "is_cut": True}
            drained_s, end = self._ends.get(number, (last_s, cut))
            client = end.get("client")
            yield Level(
                index=self.row_of(number),
                name=level.name,
                shape=level.shape,
                users=level.users,
                rate_rps=level.rate_rps,
                window_start_s=float(end["start_s"]) - zero_s,
                window_end_s=float(end["window_end_s"]) - zero_s,
                drained_s=drained_s - zero_s,
                planned=level.planned,
                exhausted=bool(end.get("exhausted")),
                is_cut=bool(end.get("is_cut")),
                think_s=level.think_s,
                trace=level.trace,
                plan_sha256=level.plan_sha256,
                client=msgspec.convert(client, ClientFacts) if client else None,
            )
