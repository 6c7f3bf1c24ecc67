"""The load child as a process: lines in, events out, its last words, its end."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import msgspec

from harness.errors import BakeoffError, InvalidRunError
from harness.load.errors import raised

Event = Mapping[str, Any]


class ChildProcess:
    """Starts the child at once; `send` tells it something, `event` is what it says next."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "harness.load.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._errors: list[str] = []
        self._readers = [  # each closes its pipe at its end
            Thread(target=target, daemon=True) for target in (self._read_events, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def send(self, line: str) -> None:
        """Tell it a line; if it has ended, raise what it said of that."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(f"{line}\n".encode())
            self._child.stdin.flush()
        except BrokenPipeError:
            self._join_readers()
            with suppress(Empty):
                while self.event(0.0) is not None:
                    continue
            self.check_end()

    def event(self, timeout_s: float | None = None) -> Event | None:
        """The next event; None: it has ended. BakeoffError for an event that is its failure.

        queue.Empty if none comes in time.
        """
        event = self._events.get(timeout=timeout_s)
        if event is not None and event.get("event") == "error":
            raise raised(event["exit_code"], event["message"])
        return event

    def wait(self, timeout_s: float) -> None:
        """Wait until it has ended, but not longer than that."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout_s)

    def check_end(self) -> None:
        """Wait for its end; BakeoffError with its last words if it was not a good one.

        InvalidRunError if somebody ended it: what was measured until then is there, and is not
        a defect of ours.
        """
        code = self._child.wait()
        self._join_readers()  # its last words may still be on their way
        if code < 0:
            raise InvalidRunError(
                f"the load process ended with signal {-code}; what was measured until then is "
                "kept: look for who ended it, such as a lack of memory"
            )
        if code:
            last = self._errors[-1] if self._errors else "it said nothing"
            raise BakeoffError(f"the load process ended with {code}: {last}")

    def kill(self) -> None:
        """End it if it has not ended; a worker that has not noticed yet keeps a reader waiting."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        self._join_readers()

    def _read_events(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as lines:
            for line in lines:
                try:
                    self._events.put(msgspec.json.decode(line, type=dict))
                except msgspec.DecodeError:  # a library's own words
                    self._errors.append(line.decode(errors="replace").rstrip())
        self._events.put(None)

    def _read_errors(self) -> None:
        assert self._child.stderr is not None
        with self._child.stderr as lines:
            for line in lines:
                self._errors.append(line.decode(errors="replace").rstrip())

    def _join_readers(self) -> None:
        for reader in self._readers:
            reader.join(timeout=1.0)
