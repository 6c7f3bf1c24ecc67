"""What users of one level share: the supply of calls, the end, and how a user plays.

A closed user is due again when its last answer has ended (plus think time); an open level has
due times of its own and no cap on requests in flight. No Locust here, so that the way a load is
played can be read and tested without it.
"""

from dataclasses import dataclass, field
from time import monotonic

from gevent.event import Event
from gevent.pool import Group

from harness.load.calls import Calls
from harness.load.client import Client, Ended
from harness.load.job import LevelJob
from harness.load.journal import JournalWriter, Kind

_FIRST_BACKOFF_S = 0.05  # after a failed request, doubled up to the second: a dead server must not
_LAST_BACKOFF_S = 1.0  # be hammered by instant failures
_ROUNDS_ALIKE = 3


@dataclass(slots=True, kw_only=True)
class Stage:
    """One level while it is played."""

    level: LevelJob
    number: int
    calls: Calls
    client: Client
    journal: JournalWriter
    start_s: float = 0.0
    window_end_s: float | None = None
    running: Group = field(default_factory=Group)
    _stopped: Event = field(default_factory=Event)
    _next: int = 0
    _answers: int = 0
    _round_start_s: float = 0.0
    _rounds: list[float] = field(default_factory=list)

    def begin(self) -> None:
        """Start the level's clock."""
        self.start_s = self._round_start_s = monotonic()

    def stop(self) -> None:
        """End the level now; who sleeps until the next request is due wakes up."""
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        """Whether the level was ended before its time."""
        return bool(self._stopped.is_set())

    def take(self) -> int | None:
        """The next call's index, or None: the supply or the time is over."""
        if self.is_stopped or self.is_over or self._next >= self.level.count:
            self.close_window()
            return None
        self._next += 1
        return self.level.first + self._next - 1

    @property
    def is_over(self) -> bool:
        """Whether the level's time is up; never for a level that only counts its requests."""
        over_s = self.level.duration_s
        return over_s is not None and monotonic() >= self.start_s + over_s

    @property
    def is_exhausted(self) -> bool:
        """Whether a closed level with a duration ran out of calls before its time."""
        level, end_s = self.level, self.window_end_s
        if level.duration_s is None or level.users is None or end_s is None or self.is_stopped:
            return False
        return self._next >= level.count and end_s < self.start_s + level.duration_s

    @property
    def played(self) -> int:
        """How many calls have been taken."""
        return self._next

    def close_window(self) -> None:
        """Note the end of the window, once: from here on the level only drains."""
        if self.window_end_s is None:
            now_s, over_s = monotonic(), self.level.duration_s
            if over_s is None or self.is_stopped:
                self.window_end_s = now_s
            else:
                self.window_end_s = min(now_s, self.start_s + over_s)

    def play(self, index: int, due_s: float, user: str) -> Ended:
        """Send one call; returns when its answer ended and why."""
        self.journal.append(Kind.DUE, index, due_s, self.number, user.encode())
        return self.client.send(index, self.calls[index].data)

    def play_closed(self, user: int) -> None:
        """One user of a closed load: the next request follows the last answer."""
        due_s, backoff_s = monotonic(), _FIRST_BACKOFF_S
        while (index := self.take()) is not None:
            ended = self.play(index, due_s, str(user))
            due_s = ended.end_s + self.level.think_s
            if ended.is_good:
                backoff_s = _FIRST_BACKOFF_S
                self._note_round(ended.end_s)
            else:
                due_s += backoff_s
                backoff_s = min(2 * backoff_s, _LAST_BACKOFF_S)
            self._sleep_until(due_s)

    def play_open(self) -> None:
        """All arrivals of an open load, each started at its own due time."""
        for offset in range(self.level.count):
            index = self.level.first + offset
            due_s = self.start_s + (self.calls[index].due_s or 0.0)
            self._sleep_until(due_s)
            if self.is_stopped:
                break
            self._next += 1
            self.running.spawn(self.play, index, due_s, "")
        if self.level.duration_s is not None:
            self._sleep_until(self.start_s + self.level.duration_s)
        self.close_window()
        self.running.join()

    def _sleep_until(self, due_s: float) -> None:
        """Sleep until then, or until the level ends: nothing is sent after it."""
        if self.level.duration_s is not None:
            due_s = min(due_s, self.start_s + self.level.duration_s)
        while not self.is_stopped and (wait_s := due_s - monotonic()) > 0:
            self._stopped.wait(wait_s)  # may wake a little early

    def _note_round(self, end_s: float) -> None:
        """In a steady warm-up: stop the level once the time per round stands still.

        A round is two answers a user; answers of users in step end together, so that the times
        between single ones would say nothing.
        """
        if self.level.steady_ratio is None or self.level.users is None:
            return
        self._answers += 1
        if self._answers % (2 * self.level.users):
            return
        self._rounds.append(end_s - self._round_start_s)
        self._round_start_s = end_s
        last = self._rounds[-_ROUNDS_ALIKE:]
        if len(last) == _ROUNDS_ALIKE and max(last) <= min(last) * (1 + self.level.steady_ratio):
            self.stop()
