"""Plays levels in this process: the child when it is alone, and each worker."""

import gc
import os
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import msgspec
from gevent.hub import get_hub

from harness.errors import ConfigError, StoreWriteError
from harness.load.calls import Calls
from harness.load.job import LevelJob, LoadJob
from harness.load.journal import FLUSH_S, JournalWriter, Kind
from harness.load.play.arrivals import OpenStage
from harness.load.play.closed import ClosedStage
from harness.load.play.job_adapter import open_job_adapter
from harness.load.play.level_facts import LevelFacts
from harness.load.play.locust_users import Users
from harness.load.play.self_watch import SelfWatch
from harness.load.play.sessions import ClosedSessions, Conversation, OpenSessions
from harness.load.play.share import Share
from harness.load.play.stage import Stage
from harness.load.wire import stamps
from harness.load.wire.client import Client, resolve

_POLL_S = 0.02
_CUT_OFF = "cut off"


class Player:
    """The client, the journal and the users of one process, from the first level to the last.

    Args:
        job: what holds for all levels.
        journal: the file to write; OSError if it cannot be made.
        zero_s: the run's zero on this process's monotonic clock.
        users: Locust's users, of a process alone or of a worker.
        share: this process's part of every level.
    """

    def __init__(
        self, job: LoadJob, journal: Path, *, zero_s: float, users: Users, share: Share
    ) -> None:
        self.job = job
        self.share = share
        self._path = journal
        self._users = users
        try:
            resolved = resolve(job.target)
        except OSError as error:
            raise ConfigError(
                f"launch.base_url: the host {job.target.host} is not known: {error.strerror}"
            ) from error
        try:
            self.journal = JournalWriter(journal)
        except OSError as error:
            raise StoreWriteError(f"{journal}: cannot be written: {error.strerror}") from error
        self.client = Client(
            resolved, self.journal, timeout_s=job.request_timeout_s, retries=job.retries
        )
        self._watch = SelfWatch(self.client)
        self._conversation: Conversation | None = None
        self._stage: Stage | None = None
        self._stopped: int | None = None
        self.is_aborted = False
        zero_wall_s = stamps.wall_now() - (monotonic() - zero_s)
        self.journal.append_json(Kind.OPEN, zero_s, zero_wall_s, pid=os.getpid())
        self._flusher: Any = get_hub().loop.timer(FLUSH_S, FLUSH_S)
        self._flusher.start(self._flush)

    def stop(self, number: int) -> None:
        """Close this level's window, now or as soon as it begins; what is under way is drained."""
        self._stopped = number
        if self._stage is not None and self._stage.level.number == number:
            self._stage.stop()

    def abort(self) -> None:
        """End the running level at once and play no further one; what was measured is kept."""
        self.is_aborted = True
        if self._stage is not None:
            self._stage.stop()
        self.client.cancel_all(_CUT_OFF)

    @staticmethod
    def settle() -> None:
        """Collect garbage now, so that the next time has little to do."""
        gc.collect()
        gc.freeze()

    def play(self, level: LevelJob, calls: Calls, start_s: float | None = None) -> LevelFacts:
        """Play this process's share of a level until all of it has ended or was cut off.

        `start_s`: when its clock starts; None: now.
        """
        self.settle()
        gc.disable()  # on, it made the P99 TTFT of 256 streams 36 ms too high (design.md 5)
        stage = self._stage_of(level, calls)
        self._watch.begin()
        start_s = monotonic() if start_s is None else start_s
        self.journal.append_json(Kind.LEVEL_BEGIN, start_s, level.number, name=level.name)
        self.journal.flush()
        self._stage = stage
        try:
            stage.begin(start_s)
            if self.is_aborted or self._stopped == level.number:
                stage.stop()
            self._users.start(stage.users, stage.play_user)
            self._drain(stage)
        finally:
            self._stage = None
            self._users.stop()
            stage.close()
            gc.enable()
        failure = stage.failure or self._users.failure
        if failure is not None:
            raise failure
        return self._facts(stage)

    def close(self) -> None:
        """Close connections and journal; StoreWriteError if the disk refused some of it."""
        self._flusher.stop()
        self.client.close()
        self.journal.close()
        self.check_disk()

    def check_disk(self) -> None:
        """StoreWriteError if the disk has refused the journal."""
        error = self.journal.error
        if error is not None:
            reason = error.strerror or str(error)
            raise StoreWriteError(f"{self._path}: cannot be written: {reason}")

    def _flush(self) -> None:
        self._watch.compare_clocks()
        self.journal.flush()
        if self.journal.error is not None and not self.is_aborted:
            self.abort()

    def _stage_of(self, level: LevelJob, calls: Calls) -> Stage:
        common: dict[str, Any] = {
            "calls": calls,
            "client": self.client,
            "journal": self.journal,
            "share": self.share,
        }
        if not level.turns:
            return (ClosedStage if level.lanes else OpenStage)(level, **common)
        if self._conversation is None:
            self._conversation = Conversation(open_job_adapter(self.job), self.job.target)
        kind = ClosedSessions if level.lanes else OpenSessions
        return kind(level, conversation=self._conversation, **common)

    def _drain(self, stage: Stage) -> None:
        """Wait until all users have left; cut off what takes longer than the drain may."""
        drain_until_s = None
        while not self._users.are_done:
            gevent.sleep(_POLL_S)
            if stage.is_over:  # every user may still wait for an answer
                stage.close_window()
            if self.is_aborted:  # also what was just about to be sent
                stage.stop()
                self.client.cancel_all(_CUT_OFF)
            if drain_until_s is None and stage.window_end_s is not None:
                drain_until_s = monotonic() + self.job.drain_timeout_s
            if drain_until_s is not None and monotonic() > drain_until_s:
                self.client.cancel_all(_CUT_OFF)
                drain_until_s += 1.0
        stage.close_window()

    def _facts(self, stage: Stage) -> LevelFacts:
        assert stage.window_end_s is not None
        facts = LevelFacts(
            start_s=stage.start_s,
            window_end_s=stage.window_end_s,
            drained_s=monotonic(),
            played=stage.played,
            exhausted=stage.is_exhausted,
            is_cut=stage.is_cut,
            turns_skipped=stage.turns_skipped,
            client=self._watch.end(),
        )
        content = msgspec.to_builtins(facts)
        self.journal.append_json(Kind.LEVEL, facts.drained_s, stage.level.number, **content)
        self.journal.flush()
        return facts
