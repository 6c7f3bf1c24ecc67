"""What workers hand over, as files beside the journal: written by the master, read by `gather`.

`workers.json`: the run's zero and who took part. `worker-W-N.arrow` and `.json`: worker W's table
and facts of level N. `worker-W.lost.json`: that it was lost, when, in which level.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

_FACTS = re.compile(r"worker-(\d+)-(\d+)\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """`workers.json`: the zero of the run's clock, when that was, and how many workers it has."""

    zero_s: float
    started_at_s: float
    workers: int
    remote_workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """How a worker played a level.

    `start_s`: when the master had it start, on the run's clock. `facts`: as in the journal, with
    times on the clock of its table: the run's for a worker of the master's machine, its own for a
    remote one.
    """

    worker: int
    number: int
    start_s: float
    is_remote: bool
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostWorker:
    """A worker that was lost in level `number`, at `t_s` of the run's clock.

    `due`: what of an open level a remote worker had to send by then, index and due time: nothing
    of it is known, since its journal is elsewhere.
    """

    worker: int
    number: int
    t_s: float
    reason: str
    due: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """The files of one run. `folder`: where its journal would be."""

    folder: Path

    def write_crew(self, crew: Crew) -> None:
        """Write `workers.json`; OSError if the disk refuses."""
        self._write("workers.json", crew)

    def crew(self) -> Crew:
        """Read `workers.json`; OSError if there is none."""
        return msgspec.json.decode((self.folder / "workers.json").read_bytes(), type=Crew)

    def write_table(self, facts: WorkerFacts, table: bytes) -> None:
        """Write a table and, when it is whole, its facts; OSError if the disk refuses."""
        self.table_path(facts).write_bytes(table)
        self._write(f"worker-{facts.worker}-{facts.number}.json", facts)

    def table_path(self, facts: WorkerFacts) -> Path:
        """Where the table of these facts is."""
        return self.folder / f"worker-{facts.worker}-{facts.number}.arrow"

    def facts(self) -> list[WorkerFacts]:
        """All facts, by level and worker."""
        paths = [path for path in self.folder.iterdir() if _FACTS.fullmatch(path.name)]
        read = [msgspec.json.decode(path.read_bytes(), type=WorkerFacts) for path in paths]
        return sorted(read, key=lambda facts: (facts.number, facts.worker))

    def write_lost(self, lost: LostWorker) -> None:
        """Write that a worker was lost; OSError if the disk refuses."""
        self._write(f"worker-{lost.worker}.lost.json", lost)

    def lost(self) -> list[LostWorker]:
        """All workers that the master has seen lost."""
        paths = sorted(self.folder.glob("worker-*.lost.json"))
        return [msgspec.json.decode(path.read_bytes(), type=LostWorker) for path in paths]

    def journals(self) -> Iterator[tuple[int, Path]]:
        """The journals of local workers, by worker."""
        for path in sorted(self.folder.glob("journal.*.bin")):
            yield int(path.name.split(".")[1]), path

    def _write(self, name: str, content: object) -> None:
        part = self.folder / f".{name}.part"
        part.write_bytes(msgspec.json.encode(content))
        part.replace(self.folder / name)
