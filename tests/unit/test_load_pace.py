from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.load import pace
from harness.load.journal import JournalWriter
from harness.load.pace import PAUSE_S, Pace
from harness.load.stats import ClientStats


class World:
    """A clock, and what was slept."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept_s: list[float] = []


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(pace, "monotonic", lambda: made.now_s)
    monkeypatch.setattr(pace, "_sleep", made.slept_s.append)
    return made


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalWriter]:
    made = JournalWriter(tmp_path / "j")
    yield made
    made.close()


def read(journal: JournalWriter, count: int) -> None:
    for _ in range(count):
        journal.append(4, 0, 0.0, 0.0, b"x")


def run(world: World, journal: JournalWriter, *, in_flight: int, reads: list[int]) -> list[int]:
    """How often it paused in each step of 25 ms, in which so many reads came."""
    watched = Pace(journal, ClientStats(in_flight=in_flight))
    pauses = []
    for count in reads:
        read(journal, count)
        world.now_s += 0.025
        world.slept_s.clear()
        watched._before_poll()
        watched._before_poll()
        assert set(world.slept_s) <= {PAUSE_S}
        pauses.append(len(world.slept_s))
    watched.close()
    return pauses


def test_it_pauses_only_while_much_comes(world: World, journal: JournalWriter) -> None:
    # 8,000 reads a second are 200 in 25 ms
    assert run(world, journal, in_flight=256, reads=[0, 200, 202, 320, 199, 0]) == [
        0, 0, 2, 2, 0, 0,
    ]  # fmt: skip


def test_it_never_pauses_for_a_few_fast_streams(world: World, journal: JournalWriter) -> None:
    assert run(world, journal, in_flight=8, reads=[400, 400]) == [0, 0]
    assert run(world, journal, in_flight=80, reads=[400]) == [2]  # 200 a second each


def test_a_flush_changes_nothing(world: World, journal: JournalWriter) -> None:
    watched = Pace(journal, ClientStats(in_flight=256))
    for count in (400, 400):
        read(journal, count)
        world.now_s += 0.025
        watched._before_poll()
    journal.flush()
    world.now_s += 0.025
    watched._before_poll()
    assert len(world.slept_s) == 3
    watched.close()
