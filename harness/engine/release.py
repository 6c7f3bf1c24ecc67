"""Whether the machine is back where it was before an engine, ahead of the next one.

Memory that an engine left behind makes the next one start beside a ghost, and a GPU that is still
hot may not clock as high. Both get a little time; what stays becomes a doubt about the next run.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from harness.engine.gpu import Gpus
from harness.types import Doubt, Severity
from harness.units import byte_size

GPU_SLACK_BYTES = 200_000_000  # other processes' memory moves a little
HOST_SLACK_BYTES = 500_000_000
HOST_SLACK_RATIO = 0.02  # of the machine's memory, where that is more
WARM_C = 10.0  # above the coolest start
TIMEOUT_S = 10.0  # the driver frees a killed process's memory after its end
COOL_TIMEOUT_S = 30.0
POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The machine at one moment. `host_bytes`: memory that processes other than ours hold.

    GPU figures are None without one.
    """

    host_bytes: int
    gpu_bytes: int | None = None
    gpu_c: float | None = None
    gpu_pids: tuple[int, ...] = ()


def level_now() -> Level:
    """The level now; what this process holds (results of earlier jobs) is not counted."""
    memory = psutil.virtual_memory()
    ours = psutil.Process().memory_info().rss
    with Gpus() as gpus:
        gpu, pids = gpus.read(), gpus.pids()
    return Level(
        host_bytes=memory.total - memory.available - ours,
        gpu_bytes=gpu.memory_bytes,
        gpu_c=gpu.temperature_c,
        gpu_pids=tuple(pids),
    )


class Released:
    """Remembers the level before each engine and compares the next start with it."""

    def __init__(
        self,
        level: Callable[[], Level] = level_now,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._level = level
        self._clock = clock
        self._sleep = sleep
        self._before: Level | None = None
        self._coolest_c: float | None = None

    def doubts(self) -> list[Doubt]:
        """Call before each engine's start: waits for the level of the start before it.

        At most 10 s for memory and 30 s for a GPU to cool; a doubt for each that is not back.
        """
        before, now = self._before, self._level()
        found: list[Doubt] = []
        if before is not None:
            now = self._wait(now, lambda level: not _left(before, level), TIMEOUT_S)
            found += _left(before, now)
            now = self._wait(now, lambda level: not self._warm(level), COOL_TIMEOUT_S)
            found += self._warm(now)
        self._before = now
        if now.gpu_c is not None:
            self._coolest_c = min(now.gpu_c, self._coolest_c or now.gpu_c)
        return found

    def _wait(self, now: Level, is_good: Callable[[Level], bool], timeout_s: float) -> Level:
        deadline_s = self._clock() + timeout_s
        while not is_good(now) and self._clock() < deadline_s:
            self._sleep(POLL_S)
            now = self._level()
        return now

    def _warm(self, now: Level) -> list[Doubt]:
        coolest_c = self._coolest_c
        if now.gpu_c is None or coolest_c is None or now.gpu_c <= coolest_c + WARM_C:
            return []
        more_c = now.gpu_c - coolest_c
        return [
            Doubt(
                code="gpu_warm",
                what=f"a GPU was at {now.gpu_c:.0f} °C at the start, {more_c:.0f} °C above the "
                "coolest start of this sweep",
                advice="see whether their clocks were held back; wait longer between runs",
                severity=Severity.NOTE,
            )
        ]


RELEASED = Released()  # one for all jobs of this process


def _left(before: Level, now: Level) -> list[Doubt]:
    """A doubt for each kind of memory that is above the level before, slack left aside."""
    slack = max(HOST_SLACK_BYTES, HOST_SLACK_RATIO * psutil.virtual_memory().total)
    held = [("memory", now.host_bytes - before.host_bytes, slack, "")]
    if now.gpu_bytes is not None and before.gpu_bytes is not None:
        pids = ", ".join(map(str, now.gpu_pids))
        who = f" (processes on it: {pids})" if pids else ""
        held.append(("GPU memory", now.gpu_bytes - before.gpu_bytes, GPU_SLACK_BYTES, who))
    return [
        Doubt(
            code="memory_left",
            what=f"{byte_size(more)} more {name} was in use at the start than before the engine "
            f"that ran before{who}",
            advice="find who holds it (ps, nvidia-smi, /dev/shm), free it and measure again",
        )
        for name, more, least, who in held
        if more > least
    ]
