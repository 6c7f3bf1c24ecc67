"""Puts together what the workers of a load measured, as if one process had.

Tables that were handed over come first. Where a worker of this machine ended before it could hand
over, its journal is decoded here; what was under way there becomes `worker_lost`. A level is as
long as its longest worker's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from harness.load.decode import Decoded, JournalDecoder, PlayedLevel
from harness.load.decode.levels import LevelRows
from harness.load.distributed.handed_over import Crew, HandedOver, LostWorker, WorkerFacts
from harness.load.distributed.merge import lost_record, merged_end, shifted
from harness.load.distributed.tables import read_records
from harness.load.journal import Entry, Kind, read_entries
from harness.types import Level, Phase, Record


def gather(
    folder: Path,
    *,
    levels: Sequence[PlayedLevel],
    block: int,
    count_tokens: Callable[[str], int] | None,
    decoder: Callable[[int], JournalDecoder],
) -> Decoded:
    """The records and levels of all workers that wrote into `folder`, the journal's.

    Records are sorted by level and index, `Record.worker` says who played them; times are on the
    run's clock, those of a remote worker shifted so that its level starts with the master's.

    Args:
        folder: where `LoadJob.journal` points into.
        levels: by number, as for a JournalDecoder.
        block: of every record.
        count_tokens: the model's tokenizer; None: chunks are counted where the server does not
            count.
        decoder: a fresh decoder for the journal of the worker with this number.

    Raises:
        OSError: no master has written there.
        StoreFormatError: a table is damaged.
    """
    gathering = _Gathering(
        files=HandedOver(folder=folder),
        levels=levels,
        block=block,
        count_tokens=count_tokens,
        decoder=decoder,
    )
    return gathering.run()


@dataclass(slots=True, kw_only=True)
class _Gathering:
    files: HandedOver
    levels: Sequence[PlayedLevel]
    block: int
    count_tokens: Callable[[str], int] | None
    decoder: Callable[[int], JournalDecoder]
    _records: dict[int, Record] = field(default_factory=dict)
    _ends: dict[int, dict[int, Mapping[str, Any]]] = field(default_factory=dict)
    _lost: dict[int, set[int]] = field(default_factory=dict)
    _rows: LevelRows = field(init=False)

    def __post_init__(self) -> None:
        self._rows = LevelRows(levels=self.levels)

    def run(self) -> Decoded:
        crew = self.files.crew()
        for facts in self.files.facts():
            self._take_table(facts)
        for worker, path in self.files.journals():
            self._take_journal(worker, path)
        for lost in self.files.lost():
            self._take_lost(lost)
        records = sorted(self._records.values(), key=lambda record: (record.level, record.index))
        return Decoded(
            zero_s=crew.zero_s,
            started_at_s=crew.started_at_s,
            records=tuple(records),
            levels=tuple(self._level_rows(crew)),
        )

    def _take_table(self, facts: WorkerFacts) -> None:
        """A worker's table of a level, and how the level went there."""
        by_s = facts.start_s - facts.facts["start_s"] if facts.is_remote else 0.0
        for record in read_records(self.files.table_path(facts), self.count_tokens):
            self._add(shifted(record, by_s), facts.number, facts.worker)
        end = dict(facts.facts)
        for name in ("start_s", "window_end_s", "drained_s"):
            end[name] += by_s
        self._ends.setdefault(facts.number, {})[facts.worker] = end

    def _take_journal(self, worker: int, path: Path) -> None:
        """What of a local worker's journal is in no table."""
        begun = {int(e.extra) for e in read_entries(path) if e.kind == Kind.LEVEL_BEGIN}
        if all(worker in self._ends.get(number, {}) for number in begun):
            return
        decoded = self.decoder(worker).decode(path)
        numbers = {self._rows.row_of(n): n for n in reversed(range(len(self.levels)))}
        for record in decoded.records:
            self._add(record, numbers[record.level], worker)
        for level in decoded.levels:
            number = numbers[level.index]
            if worker in self._ends.get(number, {}):
                continue
            self._ends.setdefault(number, {})[worker] = {
                "start_s": level.window_start_s,
                "window_end_s": level.window_end_s,
                "drained_s": level.drained_s,
                "exhausted": level.exhausted,
                "is_cut": level.is_cut,
                "client": msgspec.to_builtins(level.client),
            }
            if level.client is None:  # no word of the level's end
                self._lost.setdefault(number, set()).add(worker)

    def _take_lost(self, lost: LostWorker) -> None:
        """A worker that the master has seen lost; what it had to send by then is lost with it."""
        self._lost.setdefault(lost.number, set()).add(lost.worker)
        planned = self.decoder(lost.worker).planned
        for index, due_s in lost.due:
            record = lost_record(index, due_s, planned(index), lost.reason)
            self._add(record, lost.number, lost.worker)

    def _add(self, record: Record, number: int, worker: int) -> None:
        """A record in its place, unless a better source had it."""
        is_warmup = self.levels[number].is_warmup
        placed = replace(
            record,
            level=self._rows.row_of(number),
            block=self.block,
            phase=Phase.WARMUP if is_warmup else record.phase,
            worker=worker,
        )
        self._records.setdefault(record.index, placed)

    def _level_rows(self, crew: Crew) -> Iterator[Level]:
        for number, ends in self._ends.items():
            end = merged_end(ends, self._lost.get(number, set()), crew.workers)
            payload = msgspec.json.encode(end)
            self._rows.end(Entry(Kind.LEVEL, 0, end["drained_s"], float(number), payload))
        return self._rows.rows(0.0, 0.0)
