"""The load process: reads a job, plays its levels, writes the journal. Started by `driver`.

Protocol with the parent, one line each: in comes the path of a job file, later perhaps `abort`
(end what runs, keep what was measured); out go JSON lines (`ready`, `level`, `done`). When the
parent is gone (end of input, or its death, which the kernel tells) the process ends at once.
"""

import gc
import os
import signal
import sys
from ctypes import CDLL
from pathlib import Path
from socket import AF_INET, SOCK_STREAM
from time import monotonic
from typing import Any

import gevent
import gevent.monkey
import msgspec
from gevent.fileobject import FileObjectPosix
from gevent.hub import get_hub

from harness.load import stamps
from harness.load.calls import Calls
from harness.load.client import Client, resolve
from harness.load.job import LoadJob, read_job
from harness.load.journal import FLUSH_S, JournalWriter, Kind
from harness.load.locust_users import UserPool
from harness.load.open_files import raise_limit
from harness.load.stage import Stage

PR_SET_PDEATHSIG = 1  # linux/prctl.h
EXIT_DISK = 6


def _say(**content: Any) -> None:
    sys.stdout.write(msgspec.json.encode(content).decode() + "\n")
    sys.stdout.flush()


class Player:
    """Plays the levels of one job."""

    def __init__(self, job: LoadJob) -> None:
        self._job = job
        self._journal = JournalWriter(Path(job.journal))
        self._client = Client(
            resolve(job.host, job.port), self._journal, timeout_s=job.request_timeout_s
        )
        self._stage: Stage | None = None
        self._is_aborted = False
        self._flusher: Any = get_hub().loop.timer(FLUSH_S, FLUSH_S)

    def abort(self) -> None:
        """End the running level at once and play no further one; what was measured is kept."""
        self._is_aborted = True
        if self._stage is not None:
            self._stage.stop()
        self._client.cancel_all("cut off")

    def play(self) -> int:
        """Play all levels; returns the exit code: 0, or 6 when the disk refused the journal."""
        zero_s = self._job.zero_s
        zero_wall_s = stamps.wall_now() - (monotonic() - zero_s)
        self._journal.append_json(Kind.OPEN, zero_s, zero_wall_s, pid=os.getpid())
        self._flusher.start(self._flush)
        with Calls(Path(self._job.calls)) as calls:
            for number, level in enumerate(self._job.levels):
                if self._is_aborted:
                    break
                self._stage = Stage(
                    level=level,
                    number=number,
                    calls=calls,
                    client=self._client,
                    journal=self._journal,
                )
                self._play_level(self._stage)
                gevent.sleep(self._job.settle_s)
        self._flusher.stop()
        self._client.close()
        self._journal.close()
        if self._journal.error is not None:
            _say(event="disk", message=self._journal.error.strerror or str(self._journal.error))
            return EXIT_DISK
        return 0

    def _flush(self) -> None:
        self._journal.flush()
        if self._journal.error is not None and not self._is_aborted:
            self.abort()

    def _play_level(self, stage: Stage) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()  # on, it made the P99 TTFT of 256 streams 36 ms too high (design.md 5)
        pool = UserPool(stage)
        stage.begin()
        _say(event="level", level=stage.number, name=stage.level.name)
        pool.start()
        drain_until_s = None
        while not pool.is_done:
            gevent.sleep(0.02)
            if stage.is_over:  # every user may still wait for an answer
                stage.close_window()
            if self._is_aborted:  # also what was just about to be sent
                self._client.cancel_all("cut off")
            if drain_until_s is None and stage.window_end_s is not None:
                drain_until_s = monotonic() + self._job.drain_timeout_s
            if drain_until_s is not None and monotonic() > drain_until_s:
                self._client.cancel_all("cut off")
                drain_until_s += 1.0
        stage.close_window()
        pool.quit()
        gc.enable()
        self._journal.append_json(
            Kind.LEVEL,
            monotonic(),
            stage.number,
            start_s=stage.start_s,
            window_end_s=stage.window_end_s,
            played=stage.played,
            exhausted=stage.is_exhausted,
        )
        self._journal.flush()


def _listen(stdin: Any, player: Player) -> None:
    for line in stdin:
        if line.strip() == b"abort":
            player.abort()
    os._exit(1)  # the parent is gone: nothing that we measure will be read


def main() -> int:
    """Read the job's path from standard input and play it."""
    parent = os.getppid()
    CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    raise_limit()
    # The kernel begins to stamp lazily, when the first socket asks for it: hold one from the start.
    primer = gevent.monkey.get_original("socket", "socket")(AF_INET, SOCK_STREAM)
    stamps.enable(primer)
    _say(event="ready", pid=os.getpid())
    stdin = FileObjectPosix(sys.stdin.fileno(), "rb", close=False)
    path = stdin.readline().strip().decode()
    if not path:
        return 1
    player = Player(read_job(Path(path)))
    gevent.spawn(_listen, stdin, player)
    code = player.play()
    _say(event="done", code=code)
    primer.close()
    return code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Locust and gevent have nothing left that is worth waiting for
