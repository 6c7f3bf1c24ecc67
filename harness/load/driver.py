"""The parent's side of the load process: start it early, give it a job, watch the engine."""

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

from harness.errors import BakeoffError, StoreWriteError
from harness.load.job import LoadJob

_ABORT_WAIT_S = 5.0  # what an interrupted child gets to close its journal


class LoadProcess:
    """The load child as a context: started at once (its imports take a second), killed at exit."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "harness.load.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._lines: SimpleQueue[Mapping[str, Any] | None] = SimpleQueue()
        self._errors: list[str] = []
        self._readers = [
            Thread(target=target, daemon=True) for target in (self._read_events, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The child's process id, for its CPU and memory."""
        return self._child.pid

    def play(
        self,
        job: LoadJob,
        job_path: Path,
        *,
        on_event: Callable[[Mapping[str, Any]], None],
        should_abort: Callable[[], bool],
    ) -> None:
        """Play a job to its end; blocks.

        `should_abort` is asked ten times a second (has the engine died?); once true, the load is
        ended and what was measured is kept. StoreWriteError when the disk refused the journal.
        """
        try:
            job.write(job_path)
        except OSError as error:
            raise StoreWriteError(f"{job_path}: cannot be written: {error.strerror}") from error
        self._send(f"{job_path}\n")
        try:
            self._watch(job, on_event, should_abort)
        except KeyboardInterrupt:
            self._send("abort\n")
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_ABORT_WAIT_S)
            raise
        self._check_end()

    def _watch(
        self,
        job: LoadJob,
        on_event: Callable[[Mapping[str, Any]], None],
        should_abort: Callable[[], bool],
    ) -> None:
        is_aborting = False
        while True:
            try:
                event = self._lines.get(timeout=0.1)
            except Empty:
                if not is_aborting and should_abort():
                    is_aborting = True
                    self._send("abort\n")
                continue
            if event is None:
                break
            if event.get("event") == "disk":
                raise StoreWriteError(f"{job.journal}: cannot be written: {event['message']}")
            on_event(event)

    def _check_end(self) -> None:
        code = self._child.wait()
        self._join_readers()  # its last words may still be on their way
        if code:
            last = self._errors[-1] if self._errors else "it said nothing"
            raise BakeoffError(f"the load process ended with {code}: {last}")

    def _send(self, text: str) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(text.encode())
            self._child.stdin.flush()
        except BrokenPipeError:
            self._check_end()

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
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
