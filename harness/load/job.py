"""What the parent tells the load child: one JSON file, read once."""

from dataclasses import dataclass
from pathlib import Path

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelJob:
    """One level to play: calls `first` to `first + count` of the calls files.

    Open if `users` is None: then each call has its own due time. A closed level ends when its
    calls are used up, or after `duration_s`. `steady_ratio`: for a warm-up, end early once three
    rounds of two answers a user differ by less than this in how long they took.
    """

    name: str
    first: int
    count: int
    users: int | None = None
    think_s: float = 0.0
    duration_s: float | None = None
    is_warmup: bool = False
    steady_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """Everything the child needs; paths are absolute.

    `zero_s`: the run's zero on the monotonic clock, chosen by the parent so that telemetry and
    load share it.
    """

    zero_s: float
    host: str
    port: int
    calls: str
    journal: str
    levels: tuple[LevelJob, ...]
    request_timeout_s: float
    drain_timeout_s: float
    settle_s: float

    def write(self, path: Path) -> None:
        """Write the job file."""
        path.write_bytes(msgspec.json.encode(self))


def read_job(path: Path) -> LoadJob:
    """Read a job file written by `LoadJob.write`."""
    return msgspec.json.decode(path.read_bytes(), type=LoadJob)
