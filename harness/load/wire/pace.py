"""Reading by the clock while many bytes come: one wake-up of the process for several reads.

A process that is woken for every token of 256 streams spends half of its time on being woken, and
each time finds the processor's caches cold. The kernel stamps what arrives, so that it may be read
a little later without harm to the times; only chunks of one stream that came within such a pause
share a stamp, and are counted as merged reads. Sending does not wait.
"""

from time import monotonic
from typing import Any

from gevent.hub import get_hub

from harness.load.wire.poller import Poller
from harness.load.wire.stats import ClientStats

PAUSE_S = 0.001  # the event loop makes it up to 2 ms
_BUSY_PER_S = 8000.0  # reads: with fewer there is time to be woken for each
_MAX_STREAM_PER_S = 100.0  # reads of one stream: with more of them chunks would be merged
_LOOK_S = 0.05


class Pace:
    """Looks how much comes, and of how many requests, and has it read by the clock or at once.

    Args:
        poller: is told how to read.
        stats: says how many requests are under way.
    """

    def __init__(self, poller: Poller, stats: ClientStats) -> None:
        self._poller = poller
        self._stats = stats
        self._seen = poller.reads
        self._since_s = monotonic()
        self._is_busy = False
        self._looker: Any = get_hub().loop.timer(_LOOK_S, _LOOK_S, ref=False)
        self._looker.start(self._look)

    def close(self) -> None:
        """Look no more."""
        self._looker.stop()
        self._looker.close()

    def _look(self) -> None:
        now_s, reads = monotonic(), self._poller.reads
        reads_per_s = (reads - self._seen) / max(now_s - self._since_s, 1e-3)
        self._seen, self._since_s = reads, now_s
        is_slow_each = reads_per_s <= _MAX_STREAM_PER_S * self._stats.in_flight
        is_busy = reads_per_s > _BUSY_PER_S and is_slow_each
        if is_busy != self._is_busy:
            self._is_busy = is_busy
            self._poller.read_every(PAUSE_S if is_busy else None)
