"""CPU and memory of the machine and of process trees, as rates between two readings."""

import time
from collections.abc import Callable

import psutil

TREE_REFRESH_S = 5.0  # a walk over all processes of a big machine costs tens of milliseconds


def tree_of(pid: int) -> list[int]:
    """A process and all its descendants; empty if it is gone."""
    try:
        root = psutil.Process(pid)
        return [pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.Error:
        return []


class TreeMeter:
    """The CPU and memory of a set of processes that changes; `pids` tells who belongs to it.

    A process counts from the second reading that finds it, and one that ended between two
    readings loses its last slice. Memory is the sum of resident sets: shared pages count once
    for each process.
    """

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self._pids = pids
        self._processes: dict[int, psutil.Process] = {}
        self._cpu_s: dict[int, float] = {}
        self._refreshed_s: float | None = None
        self._read_s: float | None = None

    def read(self) -> tuple[float | None, int | None]:
        """CPU in cores since the last reading (None at the first) and resident bytes now."""
        now_s = time.monotonic()
        self._refresh(now_s)
        spent_s, rss_bytes, is_known = 0.0, 0, False
        for pid, process in list(self._processes.items()):
            try:
                times, memory = process.cpu_times(), process.memory_info()
            except psutil.Error:
                del self._processes[pid]
                self._cpu_s.pop(pid, None)
                continue
            total_s = times.user + times.system
            spent_s += total_s - self._cpu_s.get(pid, total_s)
            is_known = is_known or pid in self._cpu_s
            self._cpu_s[pid] = total_s
            rss_bytes += memory.rss
        last_s, self._read_s = self._read_s, now_s
        if not self._processes:
            return None, None
        is_rate = is_known and last_s is not None and now_s > last_s
        return (spent_s / (now_s - last_s) if is_rate and last_s is not None else None), rss_bytes

    def _refresh(self, now_s: float) -> None:
        is_due = self._refreshed_s is None or now_s - self._refreshed_s >= TREE_REFRESH_S
        if self._processes and not is_due:
            return
        self._refreshed_s = now_s
        for pid in self._pids():
            if pid not in self._processes:
                try:
                    self._processes[pid] = psutil.Process(pid)
                except psutil.Error:
                    continue


class CpuMeter:
    """How busy all cores of the machine were since the last reading."""

    def __init__(self) -> None:
        self._last = self._times()

    @staticmethod
    def _times() -> tuple[float, float]:
        times = psutil.cpu_times()
        # Guest time is contained in user time already (proc(5)).
        total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        return total_s, total_s - times.idle - getattr(times, "iowait", 0.0)

    def read(self) -> float | None:
        """Busy share of all cores, 0..1; None if no time has passed that the kernel counts."""
        total_s, busy_s = self._times()
        last_total_s, last_busy_s = self._last
        if total_s <= last_total_s:
            return None
        self._last = total_s, busy_s
        return min(1.0, max(0.0, (busy_s - last_busy_s) / (total_s - last_total_s)))
