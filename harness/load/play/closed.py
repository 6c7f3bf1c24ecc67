"""Closed levels: each user is due again when its last answer has ended, plus think time."""

from collections.abc import Iterator
from time import monotonic
from typing import Any

from harness.load.play.share import LaneShare
from harness.load.play.stage import Stage

_FIRST_BACKOFF_S = 0.05  # after a failed request, doubled up to the second: a dead server must not
_LAST_BACKOFF_S = 1.0  # be hammered by instant failures
_ROUNDS_ALIKE = 3
_ROUND_ANSWERS = 2


class ClosedStage(Stage):
    """Lanes of users; those of one lane share its supply of calls.

    The window closes when a user of any lane finds no call: from there on the load would not be
    the one that was asked for.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        shares = self.share.lanes(self.level)
        self._seats = [seat for share in shares for seat in _seats(share)]
        self._answers = 0
        self._rounds: list[float] = []
        self._round_start_s = 0.0

    @property
    def users(self) -> int:
        """How many users this process plays."""
        return len(self._seats)

    def begin(self, start_s: float) -> None:
        """Start the level's clock, and the first round's."""
        super().begin(start_s)
        self._round_start_s = start_s

    def play_user(self, number: int) -> None:
        """One user: the next request follows the last answer."""
        user, supply = self._seats[number]
        due_s, backoff_s = monotonic(), _FIRST_BACKOFF_S
        while (place := self._take(supply)) is not None:
            end_s, is_good = self._play(place, due_s, str(user))
            due_s = end_s + self.level.think_s
            if is_good:
                backoff_s = _FIRST_BACKOFF_S
                self._note_round(end_s)
            else:
                due_s += backoff_s
                backoff_s = min(2 * backoff_s, _LAST_BACKOFF_S)
            self.sleep_until(due_s)

    def _play(self, place: int, due_s: float, user: str) -> tuple[float, bool]:
        """Play what is at a place; returns when it had ended and whether it was good."""
        ended = self.send(place, self.calls[place].data, due_s, user)
        return ended.end_s, ended.is_good

    def _take(self, supply: Iterator[int]) -> int | None:
        if self.is_over:
            self.close_window()
            return None
        place = next(supply, None)
        if place is None:
            self._run_dry()
        return place

    def _run_dry(self) -> None:
        self.is_exhausted = self.level.duration_s is not None
        self.close_window()

    def _note_round(self, end_s: float) -> None:
        """In a steady warm-up: end the level once the time per round stands still.

        A round is two answers a user; answers of users in step end together, so that the times
        between single ones would say nothing.
        """
        if self.level.steady_ratio is None:
            return
        self._answers += 1
        if self._answers % (_ROUND_ANSWERS * self.users):
            return
        self._rounds.append(end_s - self._round_start_s)
        self._round_start_s = end_s
        last = self._rounds[-_ROUNDS_ALIKE:]
        if len(last) == _ROUNDS_ALIKE and max(last) <= min(last) * (1 + self.level.steady_ratio):
            self.close_window()


def _seats(share: LaneShare) -> Iterator[tuple[int, Iterator[int]]]:
    """Each user of a lane with the supply that they share."""
    supply = iter(share.places)
    for user in share.users:
        yield user, supply
