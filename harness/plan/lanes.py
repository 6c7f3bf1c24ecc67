"""Users that share a supply of their own: all users of a level, or those of one group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scenarios.wanted import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSize:
    """`users` that take the `count` requests of their lane one after another.

    `name`: of the scenario's group that they play; empty: as the scenario draws.
    """

    users: int
    count: int
    name: str = ""


def by_requests(users: Mapping[str, int], requests: int) -> tuple[LaneSize, ...]:
    """Requests shared out by the number of users; at least one a lane.

    What cannot be divided goes to the lanes in order.
    """
    total = sum(users.values())
    counts = [requests * count // total for count in users.values()]
    for lane in range(requests - sum(counts)):
        counts[lane] += 1
    return tuple(
        LaneSize(name=name, users=users[name], count=max(1, count))
        for name, count in zip(users, counts, strict=True)
    )


def by_time(users: Mapping[str, int], each: Mapping[str, int]) -> tuple[LaneSize, ...]:
    """As many requests as the users of a lane could play: `each[name]` a user."""
    return tuple(
        LaneSize(name=name, users=count, count=count * each[name]) for name, count in users.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSupply:
    """What is wanted of each place of a closed level: its lanes lie one after another.

    Request i of lane k out of n is prompt i * n + k: the same however many the lanes hold.
    `first`: added to every index.
    """

    lanes: Sequence[LaneSize]
    first: int = 0

    def wanted(self, place: int) -> Wanted:
        """The request at a place of the level."""
        for number, lane in enumerate(self.lanes):
            if place < lane.count:
                index = self.first + place * len(self.lanes) + number
                return Wanted(index=index, group=lane.name or None)
            place -= lane.count
        raise IndexError(place)
