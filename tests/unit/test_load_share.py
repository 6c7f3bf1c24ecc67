"""Who plays what: every call and every user belongs to exactly one worker."""

from itertools import chain

import pytest

from harness.load.job import Lane, LevelJob
from harness.load.play.share import Share, turns_at

OPEN = LevelJob(number=0, name="open", first=10, count=7)
LANES = LevelJob(
    number=0,
    name="lanes",
    first=100,
    count=60,
    lanes=(
        Lane(first=100, count=50, users=5, name="light"),
        Lane(first=150, count=10, users=1, name="heavy"),
    ),
)
SESSIONS = LevelJob(number=0, name="sessions", first=0, count=12, turns=(3, 1, 2, 3), turns_max=3)


def indices(level: LevelJob, workers: int) -> list[list[int]]:
    return [list(Share(worker=w, workers=workers).indices(level)) for w in range(workers)]


def test_an_open_level_is_dealt_out_in_turn() -> None:
    assert indices(OPEN, 3) == [[10, 13, 16], [11, 14], [12, 15]]


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 9])
def test_every_call_is_played_once_however_many_share_it(workers: int) -> None:
    closed_sessions = LevelJob(
        number=0,
        name="s",
        first=0,
        count=12,
        lanes=(Lane(first=0, count=12, users=2),),
        turns=(3, 1, 2, 3),
        turns_max=3,
    )
    played = {0: OPEN, 1: LANES, 2: SESSIONS, 3: closed_sessions}
    expected = {
        0: list(range(10, 17)),
        1: list(range(100, 160)),
        2: [0, 1, 2, 3, 6, 7, 9, 10, 11],
        3: [0, 1, 2, 3, 6, 7, 9, 10, 11],
    }
    for number, level in played.items():
        assert sorted(chain(*indices(level, workers))) == expected[number]


def test_users_are_spread_evenly_over_all_lanes_and_their_calls_with_them() -> None:
    first, second = (Share(worker=w, workers=2).lanes(LANES) for w in range(2))
    assert [share.users for share in first] == [(0, 2, 4), ()]
    assert [share.users for share in second] == [(1, 3), (5,)]
    assert len(first[0].places) == 30  # three of five users, three fifths of the calls
    assert list(first[0].places)[:6] == [100, 102, 104, 105, 107, 109]
    assert list(first[1].places) == []
    assert list(second[1].places) == list(range(150, 160))


def test_alone_a_lane_is_one_range() -> None:
    (light, heavy) = Share().lanes(LANES)
    assert (light.users, light.places) == ((0, 1, 2, 3, 4), range(100, 150))
    assert (heavy.users, heavy.places) == ((5,), range(150, 160))


def test_more_workers_than_users_leave_some_without() -> None:
    shares = [Share(worker=w, workers=8).lanes(LANES) for w in range(8)]
    assert [sum(len(lane.users) for lane in share) for share in shares] == [1] * 6 + [0] * 2


def test_a_session_is_played_by_one_worker() -> None:
    assert indices(SESSIONS, 2) == [[0, 1, 2, 6, 7], [3, 9, 10, 11]]
    assert [turns_at(SESSIONS, place) for place in (0, 3, 6, 9)] == [3, 1, 2, 3]
    assert turns_at(OPEN, 12) == 1
