"""Sleeping until a moment: one kernel timer for everybody of a level who waits for a due time.

The event loop's own timers count whole milliseconds and start from a clock that was read when the
loop last woke; a `timerfd` is exact to some 50 microseconds and costs no busy waiting. Whoever is
due at one wake-up is woken in it.
"""

import heapq
import os
import struct
from contextlib import suppress
from ctypes import CDLL, get_errno
from time import monotonic
from typing import Any

from gevent.hub import Waiter, get_hub

_CLOCK_MONOTONIC = 1  # linux/time.h
_TFD_NONBLOCK, _TFD_CLOEXEC = 0o4000, 0o2000000  # sys/timerfd.h
_TFD_TIMER_ABSTIME = 1
_ITIMERSPEC = struct.Struct("@qqqq")  # interval, value: seconds and nanoseconds of each
_EXPIRATIONS_BYTES = 8
_libc = CDLL(None, use_errno=True)


class Alarm:
    """Wakes greenlets at moments of the monotonic clock, until it is released."""

    def __init__(self) -> None:
        self._fd = _libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(get_errno(), os.strerror(get_errno()))
        self._watcher: Any = get_hub().loop.io(self._fd, 1)
        self._watcher.start(self._ring)
        self._sleepers: list[tuple[float, int, Any]] = []
        self._count = 0
        self._is_released = False

    def sleep_until(self, due_s: float) -> None:
        """Return at that moment, or as soon as the alarm is released."""
        if self._is_released or due_s <= monotonic():
            return
        waiter: Any = Waiter()
        self._count += 1  # two who are due together are woken in the order they came
        heapq.heappush(self._sleepers, (due_s, self._count, waiter))
        if self._sleepers[0][2] is waiter:
            self._arm()
        waiter.get()

    def release(self) -> None:
        """Wake all who sleep; from now on nobody sleeps here."""
        self._is_released = True
        sleepers, self._sleepers = self._sleepers, []
        for _, _, waiter in sorted(sleepers):
            get_hub().loop.run_callback(waiter.switch, None)

    def close(self) -> None:
        """Release everybody and give the timer back."""
        self.release()
        if self._fd >= 0:
            self._watcher.stop()
            self._watcher.close()
            os.close(self._fd)
            self._fd = -1

    def _arm(self) -> None:
        whole_s, part_s = divmod(self._sleepers[0][0], 1.0)
        value = _ITIMERSPEC.pack(0, 0, int(whole_s), max(1, int(part_s * 1e9)))
        _libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, value, None)

    def _ring(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, _EXPIRATIONS_BYTES)
        now_s = monotonic()
        while self._sleepers and self._sleepers[0][0] <= now_s:
            _, _, waiter = heapq.heappop(self._sleepers)
            waiter.switch(None)
        if self._sleepers:
            self._arm()
