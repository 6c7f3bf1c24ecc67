"""One worker as its master sees it."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gevent import subprocess

from harness.load.distributed.messages import Piece


@dataclass(slots=True, kw_only=True)
class Member:
    """A worker. `name`: Locust's for it, None before it has come. `process`: where it is ours.

    `is_remote`: it runs on another machine, on a clock of its own. Said from the start: one that
    comes while ours are being started must not take their place.

    `prepared`, `ended`, `tabled`: the last level for which it has its calls, has played it, has
    handed over its table. `lost`: why it is no longer there. `parts`: of a table that is coming.
    """

    number: int
    is_remote: bool
    name: str | None = None
    host: str = ""
    process: Any = None
    is_ready: bool = False
    is_closed: bool = False
    prepared: int | None = None
    ended: int | None = None
    tabled: int | None = None
    lost: str | None = None
    pieces: Iterator[Piece] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)

    def start(self, master: str) -> None:
        """Start its process on this machine, to work for the master at `HOST:PORT`."""
        ours = ["--parent", str(os.getpid()), "--place", str(self.number)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.load.worker", master, *ours],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    @property
    def title(self) -> str:
        """Such as `worker 2 (pid 4711)` or `worker 3 (on node7)`."""
        where = f"on {self.host or '?'}" if self.is_remote else f"pid {self.process.pid}"
        return f"worker {self.number + 1} ({where})"
