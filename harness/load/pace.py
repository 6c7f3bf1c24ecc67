"""Reading in batches while many bytes come: one wake-up of the process for several reads.

A process that is woken for every token of 256 streams spends half of its time on being woken. The
kernel stamps what arrives, so it may wait a little without harm to the times; only chunks of one
stream that came within such a pause share a stamp, and are counted as merged reads.
"""

from time import monotonic
from typing import Any

import gevent.monkey
from gevent.hub import get_hub

from harness.load.journal import JournalWriter
from harness.load.stats import ClientStats

PAUSE_S = 0.001
_BUSY_PER_S = 8000.0  # reads: with fewer the process has time to be woken for each
_MAX_STREAM_PER_S = 0.2 / PAUSE_S  # reads of one stream: with more of them chunks would merge
_PIECES = 2  # of the journal, for a read
_LOOK_S = 0.02
_sleep: Any = gevent.monkey.get_original("time", "sleep")


class Pace:
    """Pauses the event loop before it looks for what has come, if much does, of many streams.

    Args:
        journal: how fast it grows says how much comes.
        stats: says of how many requests.
    """

    def __init__(self, journal: JournalWriter, stats: ClientStats) -> None:
        self._journal = journal
        self._stats = stats
        self._seen = journal.pending
        self._since_s = monotonic()
        self._is_busy = False
        self._loop: Any = get_hub().loop
        self._watcher: Any = self._loop.prepare(ref=False)
        self._watcher.priority = self._loop.MINPRI  # after the greenlets that are ready to run
        self._watcher.start(self._before_poll)

    def close(self) -> None:
        """Pause no more."""
        self._watcher.stop()
        self._watcher.close()

    def _before_poll(self) -> None:
        now_s = monotonic()
        if now_s - self._since_s > _LOOK_S:
            self._look(now_s)
        # the loop runs greenlets for some milliseconds at most: nobody sleeps while more are ready
        if self._is_busy and not self._loop._callbacks:  # noqa: SLF001 - it has no public name
            _sleep(PAUSE_S)

    def _look(self, now_s: float) -> None:
        pending = self._journal.pending
        if pending >= self._seen:  # else it was flushed in between
            reads_per_s = (pending - self._seen) / _PIECES / (now_s - self._since_s)
            is_slow_each = reads_per_s <= _MAX_STREAM_PER_S * self._stats.in_flight
            self._is_busy = reads_per_s > _BUSY_PER_S and is_slow_each
        self._seen, self._since_s = pending, now_s
