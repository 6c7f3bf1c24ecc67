"""What the load process sees of itself during a level: its CPU, its stalls, its clocks."""

import resource
from array import array
from time import monotonic
from typing import Any

from gevent.hub import get_hub

from harness.load.wire import stamps
from harness.load.wire.client import Client
from harness.types import ClientFacts

_TICK_S = 0.01
_BIN_S = 1e-4
_BINS = 10_000  # up to a second; what is later counts as the last
_READ_WITHIN_S = 1e-3  # two clocks read further apart than this say nothing about each other
_P99 = 0.99


class SelfWatch:
    """Watches the event loop and the clocks while a level is played.

    A timer of 10 ms asks how late the loop came to it; the lateness is kept in bins of 0.1 ms, so
    that a level of hours costs no more memory than one of seconds.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._timer: Any = get_hub().loop.timer(_TICK_S, _TICK_S)
        self._bins = array("Q", bytes(8 * (_BINS + 1)))
        self._worst_s = self._due_s = self._cpu_s = self._step_s = 0.0
        self._offset_s: float | None = None
        self._before: dict[str, int] = {}

    def begin(self) -> None:
        """Begin a level: what came before does not count."""
        self._bins = array("Q", bytes(8 * (_BINS + 1)))
        self._worst_s = self._step_s = 0.0
        self._cpu_s = _cpu_s()
        self._before = self._counts()
        self._client.stats.peak_in_flight = self._client.stats.in_flight
        self.compare_clocks()
        self._due_s = monotonic() + _TICK_S
        self._timer.start(self._tick, update=True)

    def compare_clocks(self) -> None:
        """Note how far the wall clock has jumped against the monotonic one since the last time."""
        before_s = monotonic()
        wall_s = stamps.wall_now()
        after_s = monotonic()
        if after_s - before_s > _READ_WITHIN_S:
            return
        offset_s = wall_s - (before_s + after_s) / 2
        if self._offset_s is not None:
            self._step_s = max(self._step_s, abs(offset_s - self._offset_s))
        self._offset_s = offset_s

    def end(self) -> ClientFacts:
        """End the level; what was seen since its begin."""
        self._timer.stop()
        self.compare_clocks()
        counts = {name: count - self._before[name] for name, count in self._counts().items()}
        has_ticked = any(self._bins)
        return ClientFacts(
            cpu_s=_cpu_s() - self._cpu_s,
            stall_p99_s=self._stall_s(_P99) if has_ticked else None,
            stall_max_s=self._worst_s if has_ticked else None,
            clock_step_s=self._step_s,
            peak_in_flight=self._client.stats.peak_in_flight,
            **counts,
        )

    def _tick(self) -> None:
        now_s = monotonic()
        late_s = max(0.0, now_s - self._due_s)
        self._worst_s = max(self._worst_s, late_s)
        self._bins[min(int(late_s / _BIN_S), _BINS)] += 1
        self._due_s = max(self._due_s + _TICK_S, now_s)  # as the loop sets its next time

    def _stall_s(self, share: float) -> float:
        """Inverse distribution function over the bins; the upper edge of the bin it falls in."""
        wanted, seen = share * sum(self._bins), 0
        for number, count in enumerate(self._bins):
            seen += count
            if seen >= wanted:
                return min((number + 1) * _BIN_S, self._worst_s)
        return self._worst_s

    def _counts(self) -> dict[str, int]:
        stats = self._client.stats
        names = ("connects", "retries", "unstamped_reads")
        return {name: getattr(stats, name) for name in names}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
