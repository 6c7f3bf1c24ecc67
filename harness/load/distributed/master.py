"""The master: plays nothing itself, but has its workers play every level together.

It begins a level in all of them at one moment and waits until all have drained it and handed over
their tables. When one is gone the others play the level to its end, and all that was measured is
kept; no other level is played then, since it would be another load.
"""

from collections.abc import Callable
from pathlib import Path
from time import monotonic

import gevent

from harness.errors import BakeoffError, ConfigError, InvalidRunError, StoreWriteError
from harness.load.calls import Calls
from harness.load.distributed import messages as m
from harness.load.distributed.crew import Workers
from harness.load.distributed.handed_over import HandedOver, LostWorker, WorkerFacts
from harness.load.distributed.member import Member
from harness.load.distributed.piecewise import due_by, pieces, small_files
from harness.load.errors import raised
from harness.load.job import LevelJob, LevelsJob, LoadJob
from harness.load.play.share import Share

_POLL_S = 0.02
_LEAD_S = 0.2  # what a message to all workers may take before their level begins


class Master:
    """Plays levels by its workers. `say`: tells the parent. ConfigError if it cannot listen."""

    def __init__(self, job: LoadJob, say: Callable[..., None]) -> None:
        self._job = job
        self._say = say
        self._files = HandedOver(folder=Path(job.journal).parent)
        self._calls: Calls | None = None
        self._levels: tuple[LevelJob, ...] = ()
        self._number: int | None = None
        self._start_s = 0.0
        self._is_aborted = False
        self._trouble: BakeoffError | None = None
        self._workers = Workers(job, self._files, say=say, on_message=self._take)

    def play(self, levels: LevelsJob) -> None:
        """Play levels one after another.

        Raises:
            ConfigError: not all workers came, or one cannot play this load.
            InvalidRunError: a worker was lost, so that levels are left unplayed.
            StoreWriteError: a disk refused a journal or a table.
        """
        try:
            self._workers.wait_for_all(self._check)
            with Calls(Path(levels.calls)) as calls:
                self._calls, self._levels = calls, levels.levels
                self._prepare(levels)
                for place, level in enumerate(levels.levels):
                    if self._is_aborted:
                        break
                    self._refuse_if_lost(len(levels.levels) - place)
                    self._play(level)
                    gevent.sleep(self._job.settle_s)
        except BakeoffError:
            self._workers.dismiss()
            raise

    def stop(self, number: int) -> None:
        """Close the window of this level, if it is the one that runs."""
        self._workers.tell(m.Stop(number=number))

    def abort(self) -> None:
        """Cut off what runs and play nothing more."""
        self._is_aborted = True
        self._workers.tell(m.Abort())

    def close(self) -> None:
        """Have all workers end in good order."""
        self._workers.tell(m.Close())
        self._workers.end(self._check)

    def _prepare(self, levels: LevelsJob) -> None:
        first = levels.levels[0].number
        files = small_files(Path(levels.calls))
        for member in self._workers.alive:
            files_of = files if member.is_remote else {}
            self._workers.send(member, m.Prepare(levels=levels, files=files_of))
        self._wait(lambda member: member.prepared == first)

    def _play(self, level: LevelJob) -> None:
        self._number = level.number
        self._start_s = monotonic() + _LEAD_S
        self._say(event="level", level=level.number, name=level.name)
        self._workers.tell(m.Begin(number=level.number, start_s=self._start_s, lead_s=_LEAD_S))
        self._wait(lambda member: member.tabled == level.number)
        self._number = None

    def _wait(self, is_done: Callable[[Member], bool]) -> None:
        """Wait until all workers that are still there are done."""
        while not all(is_done(member) for member in self._workers.alive):
            gevent.sleep(_POLL_S)
            self._check()

    def _check(self) -> None:
        """Raise a worker's trouble; note and say which workers are gone."""
        if self._trouble is not None:
            raise self._trouble
        for member, reason in self._workers.gone():
            self._lose(member, reason)

    def _lose(self, member: Member, reason: str) -> None:
        member.lost = reason
        level = next((one for one in self._levels if one.number == self._number), None)
        during = f" during {level.name}" if level else ""
        rest = "the others go on" if self._workers.alive else "no worker is left"
        text = f"{member.title} {reason}{during}; {rest}"
        self._say(event="worker_lost", worker=member.number, message=text)
        if level is not None:
            lost = LostWorker(
                worker=member.number,
                number=level.number,
                t_s=monotonic() - self._job.zero_s,
                reason=text,
                due=self._due_of(member, level) if member.is_remote else (),
            )
            self._write(lambda: self._files.write_lost(lost))

    def _due_of(self, member: Member, level: LevelJob) -> list[tuple[int, float]]:
        """What of an open level this worker should have sent by now, on the run's clock."""
        assert self._calls is not None
        share = Share(worker=member.number, workers=self._job.workers)
        start_s = self._start_s - self._job.zero_s
        due = due_by(self._calls, level, share, monotonic() - self._start_s)
        return [(index, start_s + due_s) for index, due_s in due]

    def _refuse_if_lost(self, left: int) -> None:
        lost = self._workers.lost
        if lost:
            raise InvalidRunError(
                f"{lost[0].title} {lost[0].lost}; {left} level{'s' * (left > 1)} of this load "
                "could not be played without it, what was measured is kept"
            )

    def _take(self, member: Member, message: m.Message) -> None:
        """What a worker says once it belongs to the load."""
        if isinstance(message, m.Ready):
            member.is_ready = True
            if message.number is not None:
                member.prepared = message.number
        elif isinstance(message, m.More):
            self._send_piece(member)
        elif isinstance(message, m.Ended):
            member.ended, member.facts = message.number, message.facts
        elif isinstance(message, m.TablePart):
            self._take_part(member, message)
        elif isinstance(message, m.Closed):
            member.is_closed = True
        elif isinstance(message, m.Trouble):
            self._take_trouble(member, message)

    def _send_piece(self, member: Member) -> None:
        assert self._calls is not None
        if member.pieces is None:
            share = Share(worker=member.number, workers=self._job.workers)
            member.pieces = pieces(self._calls, self._levels, share)
        piece = next(member.pieces)
        if piece.is_last:
            member.pieces = None
        self._workers.send(member, piece)

    def _take_part(self, member: Member, part: m.TablePart) -> None:
        member.parts.append(part.data)
        if not part.is_last:
            self._workers.send(member, m.More())
            return
        facts = WorkerFacts(
            worker=member.number,
            number=part.number,
            start_s=self._start_s - self._job.zero_s,
            is_remote=member.is_remote,
            facts=member.facts,
        )
        table = b"".join(member.parts)
        member.parts = []
        self._write(lambda: self._files.write_table(facts, table))
        member.tabled = part.number

    def _take_trouble(self, member: Member, trouble: m.Trouble) -> None:
        error = raised(trouble.exit_code, f"{member.title}: {trouble.reason}")
        if isinstance(error, ConfigError | StoreWriteError):
            self._trouble = error
        else:
            self._lose(member, f"ended: {trouble.reason}")

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self._trouble = StoreWriteError(
                f"{self._files.folder}: cannot be written: {error.strerror or error}"
            )
