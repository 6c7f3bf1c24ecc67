"""The parent's side of the load process: start it early, give it levels, watch the engine."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Self

import msgspec

from harness.errors import (
    BakeoffError,
    ConfigError,
    InvalidRunError,
    StoreWriteError,
)
from harness.load.job import LevelsJob, LoadJob

_ABORT_WAIT_S = 10.0  # what an interrupted child gets to close its journal
_ERRORS = {kind.exit_code: kind for kind in (ConfigError, InvalidRunError, StoreWriteError)}

Event = Mapping[str, Any]


class LoadProcess:
    """The load child as a context: started at once (its imports take a second), killed at exit.

    `open` once, `play` as often as there are levels to play, `close` at the end.
    """

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "harness.load.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._lines: SimpleQueue[Event | None] = SimpleQueue()
        self._errors: list[str] = []
        self._readers = [
            Thread(target=target, daemon=True) for target in (self._read_events, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The child's process id, for its CPU and memory; workers are its children."""
        return self._child.pid

    def open(self, job: LoadJob, path: Path) -> None:
        """Write the job to `path` and hand it over; does not wait for what comes of it.

        StoreWriteError if it cannot be written. What the child cannot do with it (no such host,
        workers that do not come) is raised by the next `play`.
        """
        self._write(job, path)
        self._send(f"open {path}")

    def play(
        self,
        levels: LevelsJob,
        path: Path,
        *,
        on_event: Callable[[Event], None],
        should_abort: Callable[[], bool],
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        """Play levels to their end; blocks. May be called again, with other levels.

        Both questions are asked ten times a second. `should_abort` (has the engine died?): once
        true, the load is cut off and what was measured is kept; nothing can be played after it.
        `should_stop`: once true, the running level's window is closed and what is under way is
        drained; the next level is then played.

        Raises:
            StoreWriteError: the disk refused the levels' file or the journal.
            ConfigError: the load cannot begin (no such host, workers that did not come).
            InvalidRunError: a worker was lost, so that levels were not played.
            KeyboardInterrupt: as it came, once the journal is closed.
        """
        self._write(levels, path)
        self._send(f"play {path}")
        try:
            self._watch(on_event, should_abort, should_stop or (lambda: False))
        except KeyboardInterrupt:
            self._send("abort")
            self._send("close")
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_ABORT_WAIT_S)
            raise

    def close(self) -> None:
        """End the child in good order: journal flushed and closed; its failure is raised."""
        self._send("close")
        while (event := self._lines.get()) is not None:
            self._raise_error(event)
        self._check_end()

    def _write(self, job: LoadJob | LevelsJob, path: Path) -> None:
        try:
            job.write(path)
        except OSError as error:
            raise StoreWriteError(f"{path}: cannot be written: {error.strerror}") from error

    def _watch(
        self,
        on_event: Callable[[Event], None],
        should_abort: Callable[[], bool],
        should_stop: Callable[[], bool],
    ) -> None:
        is_aborting, level, stopped = False, None, None
        while True:
            try:
                event = self._lines.get(timeout=0.1)
            except Empty:
                if not is_aborting and should_abort():
                    is_aborting = True
                    self._send("abort")
                if level not in {None, stopped} and should_stop():
                    stopped = level
                    self._send(f"stop {level}")
                continue
            if event is None:
                self._check_end()
                raise BakeoffError("the load process ended before its levels")
            self._raise_error(event)
            if event.get("event") == "level":
                level = event["level"]
            on_event(event)
            if event.get("event") == "played":
                return

    @staticmethod
    def _raise_error(event: Event) -> None:
        if event.get("event") == "error":
            raise _ERRORS.get(event["exit_code"], BakeoffError)(event["message"])

    def _check_end(self) -> None:
        code = self._child.wait()
        self._join_readers()  # its last words may still be on their way
        if code:
            last = self._errors[-1] if self._errors else "it said nothing"
            raise BakeoffError(f"the load process ended with {code}: {last}")

    def _send(self, line: str) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(f"{line}\n".encode())
            self._child.stdin.flush()
        except BrokenPipeError:
            self._drain_events()
            self._check_end()

    def _drain_events(self) -> None:
        """Raise what the child said of its end, if it said something."""
        self._join_readers()
        with suppress(Empty):
            while (event := self._lines.get_nowait()) is not None:
                self._raise_error(event)

    def _read_events(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            try:
                self._lines.put(msgspec.json.decode(line, type=dict))
            except msgspec.DecodeError:  # a library's own words
                self._errors.append(line.decode(errors="replace").rstrip())
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._child.stderr is not None
        for line in self._child.stderr:
            self._errors.append(line.decode(errors="replace").rstrip())

    def _join_readers(self) -> None:
        for reader in self._readers:
            reader.join(timeout=1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        self._join_readers()
        if any(reader.is_alive() for reader in self._readers):
            return  # a worker that has not noticed yet holds the pipe
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
