"""Which part of a level one worker of several plays; alone it plays all of it.

Every call and every user belongs to exactly one worker, by its number, so that no worker has to
ask another.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from harness.load.job import Lane, LevelJob


class LaneShare(NamedTuple):
    """A worker's part of a lane: its users' numbers in the level, and the places it plays.

    A place is a call; in a level of sessions it is a session, `turns_max` calls.
    """

    users: tuple[int, ...]
    places: range | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Worker `worker` of `workers`, counted from 0."""

    worker: int = 0
    workers: int = 1

    def places(self, level: LevelJob) -> range:
        """First calls of an open level's arrivals (or sessions): every `workers`-th of them."""
        first = level.first + self.worker * level.turns_max
        return range(first, level.first + level.count, self.workers * level.turns_max)

    def lanes(self, level: LevelJob) -> list[LaneShare]:
        """This worker's users of each lane, and their part of the lane's supply.

        Users are numbered through all lanes and dealt out one by one, so that two workers never
        differ by more than one. A lane's supply is dealt to its users in the same way, so that
        each of them has as much to play as in one process.
        """
        shares, first_user = [], 0
        for lane in level.lanes:
            slots = [
                slot
                for slot in range(lane.users)
                if (first_user + slot) % self.workers == self.worker
            ]
            users = tuple(first_user + slot for slot in slots)
            shares.append(LaneShare(users, _places(lane, slots, level.turns_max)))
            first_user += lane.users
        return shares

    def indices(self, level: LevelJob) -> Iterator[int]:
        """All calls of the level that this worker may play."""
        places = [self.places(level)] if not level.lanes else [s.places for s in self.lanes(level)]
        for one in places:
            for place in one:
                yield from range(place, place + turns_at(level, place))


def turns_at(level: LevelJob, place: int) -> int:
    """How many calls a place holds: the turns of its session, or 1."""
    return level.turns[(place - level.first) // level.turns_max] if level.turns else 1


def _places(lane: Lane, slots: list[int], size: int) -> range | tuple[int, ...]:
    end = lane.first + lane.count
    if len(slots) == lane.users:
        return range(lane.first, end, size)
    rounds = range(lane.first, end, size * lane.users)
    places = (start + slot * size for start in rounds for slot in slots)
    return tuple(place for place in places if place < end)
