"""One level while one process plays it: its clock, its window, what has been sent.

What the shapes share; `closed`, `arrivals` and `sessions` say who sends when. No Locust here, so
that the way a load is played can be read and tested without it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic
from typing import Any

from gevent.pool import Group

from harness.load.calls import Calls
from harness.load.job import LevelJob
from harness.load.journal import JournalWriter, Kind
from harness.load.play.alarm import Alarm
from harness.load.play.share import Share
from harness.load.wire.client import Client, Ended


class Stage(ABC):
    """One level: `users` Locust users call `play_user` once each, and all return at its end.

    `start_s`: when its clock starts, monotonic. `window_end_s`: None while requests may be sent.
    `played`: requests sent. `is_exhausted`: a level with a duration ran out of calls before it.
    `is_cut`: it was told to end. `turns_skipped`: turns whose session had failed before.
    """

    def __init__(
        self,
        level: LevelJob,
        *,
        calls: Calls,
        client: Client,
        journal: JournalWriter,
        share: Share | None = None,
    ) -> None:
        self.level = level
        self.calls = calls
        self.share = share or Share()
        self.start_s = 0.0
        self.window_end_s: float | None = None
        self.played = 0
        self.turns_skipped = 0
        self.is_exhausted = False
        self.is_cut = False
        self.failure: Exception | None = None
        self.running = Group()
        self._client = client
        self._journal = journal
        self._alarm = Alarm()

    @property
    @abstractmethod
    def users(self) -> int:
        """How many users this process plays."""

    @abstractmethod
    def play_user(self, number: int) -> None:
        """Play user `number` of `users` to the end of the level."""

    def begin(self, start_s: float) -> None:
        """Start the level's clock, perhaps at a moment that is still to come."""
        self.start_s = start_s
        self._alarm.sleep_until(start_s)

    @property
    def end_s(self) -> float | None:
        """When the level's time is up; None for one that only counts its requests."""
        over_s = self.level.duration_s
        return None if over_s is None else self.start_s + over_s

    @property
    def is_over(self) -> bool:
        """Whether nothing more may be sent: the window is closed, or its time is up."""
        end_s = self.end_s
        return self.window_end_s is not None or (end_s is not None and monotonic() >= end_s)

    def stop(self) -> None:
        """End the level before its time: nothing more is sent, what is under way may end."""
        if self.window_end_s is None:
            self.is_cut = True
            self.close_window()

    def close_window(self) -> None:
        """Note the end of the window, once; who sleeps until a due time wakes up and leaves."""
        if self.window_end_s is None:
            now_s, end_s = max(self.start_s, monotonic()), self.end_s
            self.window_end_s = now_s if end_s is None else min(now_s, end_s)
            self._alarm.release()

    def close(self) -> None:
        """Give back what the level held, when all users have left."""
        self._alarm.close()

    def sleep_until(self, due_s: float) -> bool:
        """Sleep until then or until the level ends; whether something due then may be sent."""
        end_s = self.end_s
        if end_s is not None and due_s >= end_s:
            self._alarm.sleep_until(end_s)
            return False
        self._alarm.sleep_until(due_s)
        return self.window_end_s is None

    def send(
        self, index: int, data: bytes, due_s: float, user: str = "", *, keep: bool = False
    ) -> Ended:
        """Send one call; returns when its answer ended and why."""
        self.played += 1
        self._journal.append(Kind.DUE, index, due_s, self.level.number, user.encode())
        return self._client.send(index, data, keep=keep)

    def spawn(self, play: Callable[..., Any], *arguments: Any) -> None:
        """Play beside the user that calls; what it raises is kept in `failure`."""
        self.running.spawn(self._guarded, play, *arguments)

    def _guarded(self, play: Callable[..., Any], *arguments: Any) -> None:
        try:
            play(*arguments)
        except Exception as error:  # noqa: BLE001 - a defect of ours must not be lost in a greenlet
            self.failure = self.failure or error
            self.stop()
