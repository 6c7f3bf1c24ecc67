"""An engine's process: started through the keeper, watched, and stopped with all its descendants.

The engine's output goes to a log file that is kept. Times are on `time.monotonic`.
"""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from harness.engine.container import container_pid, remove_command
from harness.engine.exit_status import ExitStatus
from harness.engine.keeper_link import AFTER_S, KILL_S, KeeperLink, kill_tree
from harness.errors import ConfigError, EngineDiedError

START_TIMEOUT_S = 20.0  # a loaded machine starts a Python in well under a second
ORPHAN_GRACE_S = 5.0  # SIGTERM to SIGKILL when bakeoff is gone; with KILL_S well below 10 s
LOG_TAIL_BYTES = 64 * 1024
START_LOG_BYTES = 4 * 1024 * 1024  # what an engine says until it is ready
OUR_PYTHON = frozenset({"PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"})


class EngineProcess:
    """One engine with everything that it starts; a context manager.

    `argv`: the whole command. `env`: comes on top of our own environment, without what belongs
    to our own Python. `log_path`: where its output is appended.
    `keep_fds`: file descriptors held until the last descendant is gone, such as the machine
    lock's, so that a killed bakeoff does not free the machine too early.
    `container`: the engine runs in this container, and the command only stands for it.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        log_path: Path,
        cwd: Path | None = None,
        stop_timeout_s: float = 10.0,
        keep_fds: Sequence[int] = (),
        container: str | None = None,
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log_path = log_path
        self.stop_timeout_s = stop_timeout_s
        self.started_s = 0.0
        self.pid = 0
        self._env = {k: v for k, v in os.environ.items() if k not in OUR_PYTHON} | dict(env)
        self._cwd = cwd
        self._keep_fds = tuple(keep_fds)
        self._container = container
        self._container_pid: int | None = None
        self._link: KeeperLink | None = None
        self._root: psutil.Process | None = None
        self._exit: ExitStatus | None = None
        self._left: list[int] | None = None  # None until the keeper has finished
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except EngineDiedError as left:
            if error is None:
                raise
            error.add_note(str(left))  # the first failure is the one to report

    def start(self) -> Self:
        """Start the engine; ConfigError if its program cannot be started at all."""
        spec = {
            "argv": list(self.argv),
            "env": self._env,
            "cwd": str(self._cwd) if self._cwd else None,
            "grace_s": min(_grace_s(self.stop_timeout_s), ORPHAN_GRACE_S),
            "kill_s": KILL_S,
            "after": list(remove_command(self._container)) if self._container else None,
        }
        self.started_s = time.monotonic()
        self._link = KeeperLink(spec, log_path=self.log_path, keep_fds=self._keep_fds)
        problem = self._await_start()
        if problem is not None:
            self.stop()
            raise ConfigError(
                f"engine={self.name}: {self.argv[0]!r} cannot be started: {problem}; "
                f"run: bakeoff engines install {self.name}"
            )
        return self

    def _await_start(self) -> str | None:
        """Wait for the keeper's first word; None if the engine was started, else why not."""
        assert self._link is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            events = self._link.read(left_s)
            for event in events:
                self._take_in(event)
            if self.pid:
                return None
            if events:
                return str(events[0].get("error", "its keeper ended at once"))
        return f"its keeper said nothing for {START_TIMEOUT_S:g} s"

    def _take_in(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "started":
                self.pid = int(event["pid"])
                try:
                    self._root = psutil.Process(self.pid)
                except psutil.Error:
                    self._root = None  # it has ended already
            case "exit":
                self._exit = ExitStatus(
                    code=event["code"], signal=event["signal"], at_s=event["at_s"]
                )
            case "done" | "failed":
                self._left = list(event.get("left", ()))
            case "lost" if self._left is None:
                self._left = kill_tree(self._root)
                if self._exit is None:
                    self._exit = ExitStatus(code=None, signal=None, at_s=time.monotonic())

    def _update(self, wait_s: float) -> None:
        if self._link is not None:
            for event in self._link.read(wait_s):
                self._take_in(event)

    def poll(self) -> ExitStatus | None:
        """How the engine ended, or None while it runs; never waits. Safe from any thread."""
        with self._lock:
            self._update(0.0)
            return self._exit

    def tree_pids(self) -> list[int]:
        """The engine and all its live descendants, in whatever session; without the keeper."""
        link = self._link
        if link is None:
            return []
        root = self._engine_root(link.pid)
        try:
            below = [p.pid for p in psutil.Process(root).children(recursive=True)]
        except psutil.Error:
            return []
        return below if root == link.pid else [root, *below]

    def _engine_root(self, keeper: int) -> int:
        """The keeper, or the first process of a container, which is no child of ours."""
        if self._container and self._container_pid is None:
            self._container_pid = container_pid(self._container)
        return self._container_pid or keeper

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the engine's log, undecodable bytes replaced; empty if none."""
        return "\n".join(self.log_text(LOG_TAIL_BYTES).splitlines()[-lines:])

    def log_text(self, last_bytes: int = START_LOG_BYTES) -> str:
        """So much of the log's end, undecodable bytes replaced; empty if there is none."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, 2) - last_bytes))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def died_error(self, status: ExitStatus, *, zero_s: float) -> EngineDiedError:
        """The error for an engine that ended during a load whose clock starts at `zero_s`."""
        return EngineDiedError(
            f"engine={self.name}: the server ended with {status} at "
            f"{status.at_s - zero_s:.2f} s; its last words are in {self.log_path}"
        )

    def stop(self, timeout_s: float | None = None) -> ExitStatus | None:
        """SIGTERM, a grace, then SIGKILL to every descendant; how the engine ended.

        All of it within `timeout_s` (default: `stop_timeout_s`). Raises EngineDiedError, which
        lists the process ids, if any process is left. Calling it again does nothing.
        """
        limit_s = self.stop_timeout_s if timeout_s is None else timeout_s
        with self._lock:
            link = self._link
            if link is None:
                return self._exit
            link.tell(f"stop {_grace_s(limit_s):.3f}")
            tidy_s = AFTER_S if self._container else 0.0
            deadline_s = time.monotonic() + limit_s + KILL_S + tidy_s + 1.0
            while self._left is None and (left_s := deadline_s - time.monotonic()) > 0:
                self._update(left_s)
            link.close()
            self._link = None
        left = [link.pid] if self._left is None else self._left
        if left:
            raise EngineDiedError(
                f"engine={self.name}: processes are left after {limit_s:g} s and SIGKILL: "
                f"{', '.join(map(str, left))}; end them before the next run, "
                "they may hold memory"
            )
        return self._exit


def _grace_s(timeout_s: float) -> float:
    return max(timeout_s - KILL_S, timeout_s / 2)
