"""A worker: plays its share of every level, decodes what it measured, hands over tables.

Started by the master on its own machine (`python -m harness.load.worker HOST:PORT PLACE`), or by
`bakeoff worker` on another one. Between levels nothing of the master's clock is needed.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from os import getpid
from pathlib import Path
from socket import gethostname
from time import monotonic

import msgspec
from gevent.hub import get_hub

from harness.errors import BakeoffError, InterruptedRunError
from harness.load.calls import Calls
from harness.load.distributed import messages as m
from harness.load.distributed.contact import MasterContact
from harness.load.distributed.piecewise import ReceivedCalls
from harness.load.distributed.reach import check_reachable
from harness.load.distributed.worker_tables import WorkerTables
from harness.load.job import LevelJob
from harness.load.play.job_adapter import open_job_adapter
from harness.load.play.player import Player
from harness.load.play.share import Share


class Worker:
    """One worker from its first word to its last.

    Args:
        host: where the master is.
        port: its port.
        wait_s: how long it may take to answer.
        place: its number, where the master started it; None: it comes from elsewhere.
        folder: where a worker from elsewhere keeps its files for as long as it lives.
        tell: told in a sentence what it does.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        wait_s: float,
        place: int | None,
        folder: Path,
        tell: Callable[[str], None],
    ) -> None:
        self._place = place
        self._folder = folder
        self._tell = tell
        self._player: Player | None = None
        self._zero_s = 0.0
        self._levels: dict[int, LevelJob] = {}
        self._calls: Calls | None = None
        self._open = ExitStack()
        self._tables: WorkerTables | None = None
        self._master = MasterContact(host, port, wait_s=wait_s, on_urgent=self._take_urgent)

    def run(self) -> None:
        """Work until the master says that all is played; BakeoffError when it cannot be."""
        try:
            self._join()
            while not isinstance(message := self._master.next(), m.Close):
                if isinstance(message, m.Prepare):
                    self._prepare(message)
                elif isinstance(message, m.Begin):
                    self._play(message)
            if self._player is not None:
                self._player.close()
            self._master.say(m.Closed())
        except BakeoffError as error:
            self._master.say(m.Trouble(exit_code=error.exit_code, reason=str(error)))
            raise
        finally:
            self._master.close()

    def interrupt(self) -> None:
        """End as soon as what runs has been cut off."""
        self._master.break_off(
            InterruptedRunError("interrupted; the run goes on without this worker")
        )

    def _join(self) -> None:
        hello = m.Hello(
            version=m.our_version(), host=gethostname(), pid=getpid(), place=self._place
        )
        self._master.say(hello)
        welcome = self._master.expect(m.Welcome)
        job, worker = welcome.job, welcome.worker
        if self._place is None:
            check_reachable(job.target.host, job.target.port)
            journal, zero_s = self._folder / "journal.bin", monotonic()
        else:
            journal = Path(job.journal).with_name(f"journal.{worker}.bin")
            zero_s = job.zero_s
        self._zero_s = zero_s
        share = Share(worker=worker, workers=job.workers)
        self._player = Player(job, journal, zero_s=zero_s, users=self._master.users, share=share)
        self._tables = WorkerTables(open_job_adapter(job), journal, worker)
        self._tell(f"joined {self._master.address} as worker {worker + 1} of {job.workers}")
        self._master.say(m.Ready())

    def _prepare(self, message: m.Prepare) -> None:
        levels = message.levels
        self._levels = {level.number: level for level in levels.levels}
        self._open.close()
        folder = Path(levels.calls)
        if self._place is None:
            received = ReceivedCalls(self._folder, message.files)
            while not received.is_whole:
                self._master.say(m.More())
                received.take(self._master.expect(m.Piece))
            folder = received.folder
        self._calls = self._open.enter_context(Calls(folder))
        assert self._player is not None
        assert self._tables is not None
        self._tables.prepare(levels.levels, self._calls)
        self._player.settle()  # the first time takes a tenth of a second
        self._master.say(m.Ready(number=levels.levels[0].number))

    def _play(self, message: m.Begin) -> None:
        assert self._player is not None
        assert self._calls is not None
        level = self._levels[message.number]
        self._tell(f"playing {level.name}")
        is_ours = self._place is not None
        start_s = message.start_s if is_ours else monotonic() + message.lead_s
        facts = self._player.play(level, self._calls, start_s)
        self._player.check_disk()
        own = replace(
            facts,
            start_s=facts.start_s - self._zero_s,
            window_end_s=facts.window_end_s - self._zero_s,
            drained_s=facts.drained_s - self._zero_s,
        )
        self._master.say(m.Ended(number=level.number, facts=msgspec.to_builtins(own)))
        self._hand_over(level.number)

    def _hand_over(self, number: int) -> None:
        """Decode beside the event loop, so that we are still heard, and send the table."""
        assert self._tables is not None
        data: bytes = get_hub().threadpool.apply(self._tables.read_on)
        for at in range(0, len(data), m.PIECE_BYTES):
            part, is_last = data[at : at + m.PIECE_BYTES], at + m.PIECE_BYTES >= len(data)
            self._master.say(m.TablePart(number=number, data=part, is_last=is_last))
            if not is_last:
                self._master.expect(m.More)

    def _take_urgent(self, what: m.Stop | m.Abort | BakeoffError) -> None:
        if self._player is None:
            return
        if isinstance(what, m.Stop):
            self._player.stop(what.number)
        else:
            self._player.abort()
