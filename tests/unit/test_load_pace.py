import pytest

from harness.load.wire import pace
from harness.load.wire.pace import PAUSE_S, Pace
from harness.load.wire.stats import ClientStats


class CountingPoller:
    """Counts what it is told, and notes how it is to read."""

    def __init__(self) -> None:
        self.reads = 0
        self.told: list[float | None] = []

    def read_every(self, pause_s: float | None) -> None:
        self.told.append(pause_s)


def told(
    monkeypatch: pytest.MonkeyPatch, *, in_flight: int, reads: list[int]
) -> list[list[float | None]]:
    """What the poller is told after each 50 ms in which so many reads came."""
    now_s = [100.0]
    monkeypatch.setattr(pace, "monotonic", lambda: now_s[0])
    poller = CountingPoller()
    watched = Pace(poller, ClientStats(in_flight=in_flight))  # type: ignore[arg-type]
    steps = []
    for count in reads:
        poller.reads += count
        now_s[0] += 0.0625
        poller.told = []
        watched._look()
        steps.append(poller.told)
    watched.close()
    return steps


def test_much_of_many_streams_is_read_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    # 8,000 a second are 500 in 62.5 ms
    steps = told(monkeypatch, in_flight=256, reads=[0, 500, 501, 900, 500, 0])
    assert steps == [[], [], [PAUSE_S], [], [None], []]


def test_fast_streams_are_read_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, in_flight=99, reads=[625, 625]) == [[], []]
    assert told(monkeypatch, in_flight=100, reads=[625, 625]) == [[PAUSE_S], []]
