"""A worker's own reading of its journal: each level becomes a table as soon as it is over."""

from collections.abc import Sequence
from pathlib import Path

from harness.adapter import Adapter
from harness.load.calls import Calls, Planned
from harness.load.decode import JournalDecoder, PlayedLevel
from harness.load.distributed.tables import UncountedTexts
from harness.load.job import LevelJob
from harness.load.tail import JournalTail


class WorkerTables:
    """Decodes what a worker has measured since the last time."""

    def __init__(self, adapter: Adapter, journal: Path, worker: int) -> None:
        self._tail = JournalTail(journal)
        self._texts = UncountedTexts()
        self._levels: list[PlayedLevel] = []
        self._calls: Calls | None = None
        self._decoder = JournalDecoder(
            adapter=adapter,
            block=0,  # what a worker does not know is filled in where tables are put together
            planned=self._planned,
            levels=self._levels,
            count_tokens=self._texts.keep,
            worker=worker,
        )

    def prepare(self, levels: Sequence[LevelJob], calls: Calls) -> None:
        """Levels that come next, and their calls."""
        self._calls = calls
        for level in levels:
            while len(self._levels) <= level.number:
                self._levels.append(PlayedLevel(name="", shape=""))
            self._levels[level.number] = PlayedLevel(
                name=level.name, shape="", is_warmup=level.is_warmup
            )

    def read_on(self) -> bytes:
        """The table of all requests that have ended since the last time, as Arrow IPC bytes."""
        taken = (self._decoder.take(entry) for entry in self._tail.entries())
        return self._texts.table_bytes([record for record in taken if record is not None])

    def _planned(self, index: int) -> Planned:
        assert self._calls is not None
        return self._calls.planned(index)
