"""The load process: plays levels alone, or as master of workers. Started by `driver`.

Protocol with the parent, one line each. In: `open PATH` (of a LoadJob), `play PATH` (of a
LevelsJob, any number of times), `close`; while levels are played `stop NUMBER` (close that level's
window) and `abort` (cut off what runs, keep what was measured). Out: JSON lines `ready`, `level`,
`played`, `worker`, `error`. When the parent is gone (end of input, or its death, which the kernel
tells) the process ends at once.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import gevent
import msgspec
from gevent.fileobject import FileObjectPosix
from gevent.queue import Queue

from harness.errors import BakeoffError
from harness.load.distributed.master import Master
from harness.load.job import LevelsJob, LoadJob, read_job, read_levels
from harness.load.play.alone import LoadAlone
from harness.load.process import die_with_parent, primed


class Load(Protocol):
    """What plays levels: this process alone, or its workers."""

    def play(self, levels: LevelsJob) -> None:
        """Play levels one after another; BakeoffError if that cannot be."""
        ...

    def stop(self, number: int) -> None:
        """Close the window of this level, if it is the one that runs."""
        ...

    def abort(self) -> None:
        """Cut off what runs and play nothing more."""
        ...

    def close(self) -> None:
        """End in good order, everything written; StoreWriteError if the disk refused."""
        ...


def say(**content: Any) -> None:
    """Tell the parent."""
    sys.stdout.write(msgspec.json.encode(content).decode() + "\n")
    sys.stdout.flush()


class Session:
    """Takes the parent's lines: what is to be played waits its turn, what ends it does not."""

    def __init__(self) -> None:
        self._waiting: Any = Queue()
        self._load: Load | None = None
        self._is_aborted = False

    def listen(self, stdin: Any) -> None:
        """Read lines until the parent is gone; then end this process."""
        for line in stdin:
            word, _, rest = line.decode().strip().partition(" ")
            if word == "abort":
                self._is_aborted = True
                if self._load is not None:
                    self._load.abort()
            elif word == "stop":
                if self._load is not None:
                    self._load.stop(int(rest))
            else:
                self._waiting.put((word, rest))
        os._exit(1)  # the parent is gone: nothing that we measure will be read

    def run(self) -> None:
        """Do what is asked until `close`; BakeoffError when something cannot be done."""
        does: dict[str, Callable[[Path], None]] = {"open": self._open, "play": self._play}
        while True:
            word, path = self._waiting.get()
            if word == "close":
                break
            does[word](Path(path))
        if self._load is not None:
            self._load.close()

    def _open(self, path: Path) -> None:
        job: LoadJob = read_job(path)
        is_shared = job.workers > 1 or job.remote_workers > 0
        self._load = Master(job, say) if is_shared else LoadAlone(job, say)

    def _play(self, path: Path) -> None:
        assert self._load is not None
        if not self._is_aborted:
            self._load.play(read_levels(path))
        say(event="played")


def main() -> int:
    """Do what the parent asks; returns the exit code."""
    if not die_with_parent():
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    primer = primed()
    say(event="ready", pid=os.getpid())
    session = Session()
    gevent.spawn(session.listen, FileObjectPosix(sys.stdin.fileno(), "rb", close=False))
    try:
        session.run()
    except BakeoffError as error:
        say(event="error", exit_code=error.exit_code, message=str(error))
        return error.exit_code
    primer.close()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Locust and gevent have nothing left that is worth waiting for
