"""The parent's side of the load process: start it early, give it levels, watch the engine."""

from collections.abc import Callable
from pathlib import Path
from queue import Empty
from types import TracebackType
from typing import Self

from harness.errors import BakeoffError, StoreWriteError
from harness.load.child_process import ChildProcess, Event
from harness.load.job import LevelsJob, LoadJob

_ASK_S = 0.1
_ABORT_WAIT_S = 10.0  # what an interrupted child gets to close its journal


class LoadProcess:
    """The load child as a context: started at once (its imports take a second), killed at exit.

    `open` once, `play` as often as there are levels to play, `close` at the end.
    """

    def __init__(self) -> None:
        self._child = ChildProcess()

    @property
    def pid(self) -> int:
        """The child's process id, for its CPU and memory; workers are its children."""
        return self._child.pid

    def open(self, job: LoadJob, path: Path) -> None:
        """Write the job to `path` and hand it over; does not wait for what comes of it.

        StoreWriteError if it cannot be written. What the child cannot do with it (no such host,
        workers that do not come) is raised by the next `play`.
        """
        _write(job, path)
        self._child.send(f"open {path}")

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
        _write(levels, path)
        self._child.send(f"play {path}")
        try:
            self._watch(on_event, should_abort, should_stop or (lambda: False))
        except KeyboardInterrupt:
            self._child.send("abort")
            self._child.send("close")
            self._child.wait(_ABORT_WAIT_S)
            raise

    def close(self) -> None:
        """End the child in good order: journal flushed and closed; its failure is raised."""
        self._child.send("close")
        while self._child.event() is not None:
            continue
        self._child.check_end()

    def _watch(
        self,
        on_event: Callable[[Event], None],
        should_abort: Callable[[], bool],
        should_stop: Callable[[], bool],
    ) -> None:
        is_aborting, level, stopped = False, None, None
        while True:
            try:
                event = self._child.event(_ASK_S)
            except Empty:
                if not is_aborting and should_abort():
                    is_aborting = True
                    self._child.send("abort")
                if level not in {None, stopped} and should_stop():
                    stopped = level
                    self._child.send(f"stop {level}")
                continue
            if event is None:
                self._child.check_end()
                raise BakeoffError("the load process ended before its levels did")
            if event.get("event") == "level":
                level = event["level"]
            on_event(event)
            if event.get("event") == "played":
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.kill()


def _write(job: LoadJob | LevelsJob, path: Path) -> None:
    try:
        job.write(path)
    except OSError as error:
        raise StoreWriteError(f"{path}: cannot be written: {error.strerror}") from error
