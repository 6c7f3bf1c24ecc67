"""Is the machine back where it was before the last engine? By made-up levels and clock."""

from dataclasses import dataclass, field

import pytest

from harness.engine import release
from harness.engine.release import COOL_TIMEOUT_S, TIMEOUT_S, Level, Released, level_now
from harness.types import Severity

GB = 10**9


@dataclass
class Machine:
    """Gives its levels in turn, the last one for ever; sleeping is what passes time."""

    levels: list[Level]
    now_s: float = 0.0
    slept: list[float] = field(default_factory=list)

    def level(self) -> Level:
        return self.levels.pop(0) if len(self.levels) > 1 else self.levels[0]

    def sleep(self, s: float) -> None:
        self.now_s += s
        self.slept.append(s)

    def released(self) -> Released:
        return Released(self.level, clock=lambda: self.now_s, sleep=self.sleep)


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "HOST_SLACK_RATIO", 0.0)  # 500 MB, whatever this machine has


def test_the_first_start_has_nothing_to_compare_with() -> None:
    machine = Machine([Level(host_bytes=9 * GB, gpu_bytes=9 * GB, gpu_c=90.0)])
    assert machine.released().doubts() == []
    assert machine.slept == []


def test_memory_that_comes_back_in_time_is_waited_for() -> None:
    before, held = Level(host_bytes=2 * GB), Level(host_bytes=4 * GB)
    machine = Machine([before, held, held, Level(host_bytes=2 * GB + 499_000_000)])
    released = machine.released()
    assert released.doubts() == []
    assert released.doubts() == []
    assert len(machine.slept) == 2


def test_memory_that_stays_is_a_doubt_about_the_next_run_only() -> None:
    machine = Machine([Level(host_bytes=2 * GB), Level(host_bytes=4 * GB)])
    released = machine.released()
    released.doubts()
    (doubt,) = released.doubts()
    assert (doubt.code, doubt.severity) == ("memory_left", Severity.WARN)
    assert doubt.what == (
        "1.86 GiB more memory was in use at the start than before the engine that ran before"
    )
    assert sum(machine.slept) == pytest.approx(TIMEOUT_S, abs=0.3)
    assert released.doubts() == []


def test_gpu_memory_that_stays_names_who_is_on_it() -> None:
    before = Level(host_bytes=GB, gpu_bytes=GB)
    machine = Machine([before, Level(host_bytes=GB, gpu_bytes=GB + 200_000_001, gpu_pids=(7, 9))])
    released = machine.released()
    released.doubts()
    (doubt,) = released.doubts()
    assert doubt.what.startswith("191 MiB more GPU memory was in use at the start")
    assert doubt.what.endswith(" (processes on it: 7, 9)")


def test_a_hot_gpu_is_given_time_and_then_noted() -> None:
    hot, cool = (Level(host_bytes=GB, gpu_bytes=GB, gpu_c=c) for c in (71.0, 35.0))
    machine = Machine([cool, hot, hot, Level(host_bytes=GB, gpu_bytes=GB, gpu_c=45.0), hot])
    released = machine.released()
    released.doubts()
    assert released.doubts() == []  # 45 °C is within 10 °C
    (doubt,) = released.doubts()
    assert (doubt.code, doubt.severity) == ("gpu_warm", Severity.NOTE)
    assert doubt.what.startswith("a GPU was at 71 °C at the start, 36 °C above the coolest start")
    assert sum(machine.slept) == pytest.approx(COOL_TIMEOUT_S, abs=1.0)


def test_the_level_now_is_that_of_this_machine() -> None:
    level = level_now()
    assert 0 < level.host_bytes < 10**15
