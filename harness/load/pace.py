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

PAUSE_S = 0.0005
_BUSY_PER_S = 8000.0  # pieces of the journal, two a read: below, tokens come singly anyway
_LOOK_S = 0.02
_sleep: Any = gevent.monkey.get_original("time", "sleep")


class Pace:
    """Pauses the event loop before it looks for what has come, if much does.

    Args:
        journal: how fast it grows says how much comes.
    """

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._seen = journal.pending
        self._look_s = monotonic() + _LOOK_S
        self._is_busy = False
        loop = get_hub().loop
        self._watcher: Any = loop.prepare(ref=False)
        self._watcher.priority = loop.MINPRI  # after the greenlets that are ready to run
        self._watcher.start(self._before_poll)

    def close(self) -> None:
        """Pause no more."""
        self._watcher.stop()
        self._watcher.close()

    def _before_poll(self) -> None:
        now_s = monotonic()
        if now_s >= self._look_s:
            pending, span_s = self._journal.pending, now_s - self._look_s + _LOOK_S
            if pending >= self._seen:  # else it was flushed in between
                self._is_busy = (pending - self._seen) / span_s > _BUSY_PER_S
            self._seen, self._look_s = pending, now_s + _LOOK_S
        if self._is_busy:
            _sleep(PAUSE_S)
