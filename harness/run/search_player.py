"""Plays the levels of a search as they are decided on, and reads along in the journal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from harness.config import LevelConf, Shape
from harness.load.calls import Planned, PlannedCalls
from harness.load.decode import JournalDecoder, PlayedLevel
from harness.load.tail import JournalTail
from harness.plan.level import PlannedLevel
from harness.plan.probe import closed_level, probe_level
from harness.run.load_calls import Written, write_levels
from harness.run.preflight import Prepared
from harness.types import Record


class PlayWritten(Protocol):
    """Hands written levels to the load process and waits until they are played."""

    def __call__(self, written: Written, should_stop: Callable[[], bool] | None = None, /) -> None:
        """Blocks; `should_stop` ends the level's window early."""


@dataclass(slots=True, kw_only=True)
class SearchPlayer:
    """The levels of a search on one server, one after another.

    `levels`, `calls`: of all that was played, the warm-up included; `play_written` adds to both,
    and `planned` looks a request up in `calls`. `decoder`, `tail`: of the whole run's journal.
    """

    prepared: Prepared
    base_url: str
    folder: Path
    journal: Path
    levels: Sequence[PlayedLevel]
    calls: Sequence[PlannedCalls]
    play_written: PlayWritten
    planned: Callable[[int], Planned]
    decoder: JournalDecoder = field(init=False)
    tail: JournalTail = field(init=False)

    def __post_init__(self) -> None:
        self.tail = JournalTail(self.journal)
        self.decoder = JournalDecoder(
            adapter=self.prepared.adapter,
            block=self.prepared.conf.block,
            planned=self.planned,
            levels=self.levels,
        )

    @property
    def number(self) -> int:
        """The next level's."""
        return len(self.levels)

    @property
    def row(self) -> int:
        """The next level's row among those that are measured."""
        return sum(not level.is_warmup for level in self.levels)

    @property
    def next_index(self) -> int:
        """The first index that no request has."""
        return max((calls.first + len(calls) for calls in self.calls), default=0)

    def closed(self, name: str, *, users: int, requests: int) -> list[Record]:
        """Play users until so many requests are sent; gives what became of them."""
        planned = closed_level(
            self.prepared.conf,
            self.prepared.tokenizer,
            LevelConf(shape=Shape.USERS, users=users, requests=requests),
            number=self.number,
            first_index=self.next_index,
        )
        self._play(planned, name)
        entries = self.tail.entries()
        return [record for entry in entries if (record := self.decoder.take(entry)) is not None]

    def rate(self, rate_rps: float, *, duration_s: float, should_stop: Callable[[], bool]) -> None:
        """Play open arrivals at this rate until they are over, or `should_stop` says enough."""
        planned = probe_level(
            self.prepared.conf,
            self.prepared.tokenizer,
            number=self.number,
            rate_rps=rate_rps,
            first_index=self.next_index,
            duration_s=duration_s,
        )
        self._play(planned, f"probe {rate_rps:.3g}/s", should_stop)

    def _play(
        self, planned: PlannedLevel, name: str, should_stop: Callable[[], bool] | None = None
    ) -> None:
        written = write_levels(
            self.prepared.conf,
            [planned],
            self.prepared.adapter,
            self.folder / f"level-{self.number}",
            base_url=self.base_url,
            first_number=self.number,
        )
        rows = [replace(row, shape=Shape.SEARCH.value, name=name) for row in written.rows]
        self.play_written(replace(written, rows=tuple(rows)), should_stop)
