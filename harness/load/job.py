"""What the parent tells the load process: JSON files, each read once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from harness.types import Wire

_USUAL_PORTS = {False: 80, True: 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Users that share a supply of their own: calls `first` to `first + count`."""

    first: int
    count: int
    users: int
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelJob:
    """One level to play: calls `first` to `first + count` of its calls files.

    `number`: its place in the run, the warm-up included; entries of the journal carry it.
    Closed if there are `lanes`: each user takes the next call of its lane when its last answer
    has ended. Open if there are none: then each call has a due time of its own. A closed level
    ends when its calls are used up, or after `duration_s`.
    `turns`: of a level of sessions, how many each session has; its calls are not bytes but
    requests, `turns_max` places a session, that are encoded when their history is known.
    `steady_ratio`: for a warm-up, end early once three rounds of two answers a user differ by
    less than this in how long they took.
    """

    number: int
    name: str
    first: int
    count: int
    lanes: tuple[Lane, ...] = ()
    think_s: float = 0.0
    duration_s: float | None = None
    turns: tuple[int, ...] = ()
    turns_max: int = 1
    is_warmup: bool = False
    steady_ratio: float | None = None

    @property
    def users(self) -> int:
        """Users of all lanes; 0 for an open level."""
        return sum(lane.users for lane in self.lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server. `prefix`: put before every path. `api_key_env`: where its key is.

    `wire`: what its calls are written as.
    """

    host: str
    port: int
    is_tls: bool = False
    tls_verify: bool = True
    prefix: str = ""
    api_key_env: str = ""
    wire: Wire = Wire.HTTP

    @property
    def authority(self) -> str:
        """What the Host header says (RFC 9110, 7.2): IPv6 in brackets, no port if the usual."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = self.port == _USUAL_PORTS[self.is_tls]
        return host if is_usual else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """What holds for all levels; paths are absolute.

    `zero_s`: the run's zero on the monotonic clock, chosen by the parent so that telemetry and
    load share it. `engine`, `model`, `mode`: the configuration that the adapter is made from,
    for sessions and for workers, which decode what they played.
    """

    zero_s: float
    target: Target
    journal: str
    request_timeout_s: float
    drain_timeout_s: float
    settle_s: float
    retries: int = 0
    workers: int = 1
    remote_workers: int = 0
    worker_wait_s: float = 60.0
    master_bind: str = "127.0.0.1:5557"
    engine: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "process"

    def write(self, path: Path) -> None:
        """Write the job file."""
        path.write_bytes(msgspec.json.encode(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelsJob:
    """Levels to play one after another now; their calls are in the folder `calls`."""

    calls: str
    levels: tuple[LevelJob, ...]

    def write(self, path: Path) -> None:
        """Write the job file."""
        path.write_bytes(msgspec.json.encode(self))


def read_job(path: Path) -> LoadJob:
    """Read a file written by `LoadJob.write`."""
    return msgspec.json.decode(path.read_bytes(), type=LoadJob)


def read_levels(path: Path) -> LevelsJob:
    """Read a file written by `LevelsJob.write`."""
    return msgspec.json.decode(path.read_bytes(), type=LevelsJob)
