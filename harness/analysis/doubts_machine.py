"""Doubts about the machine under the load: was the client out of breath, who else was there?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.analysis.calibration import calibration_of
from harness.analysis.facts import machine_of, setting
from harness.analysis.model import Achieved
from harness.types import Doubt, RunInfo, Severity
from harness.units import number, percent

if TYPE_CHECKING:
    from harness.analysis.views import LevelView

_CLIENT_CPU = 0.8  # of one core; one client core is one worker
_MACHINE_CPU = 0.95
_NEIGHBOURS_CORES = 0.25  # beside the engine, the client and our own telemetry
_NEAR_CAPACITY = 0.8


def machine_doubts(info: RunInfo, view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    """Doubts about the machine in one level; `found`: what came of it."""
    if not len(view.measured):
        return
    yield from _busy(view, found)
    yield from _neighbours(info, view)
    yield from _capacity(info, view, found)


def _busy(view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    client = found.cpu_ratio
    if client is not None and client > _CLIENT_CPU:
        each = "" if found.workers == 1 else f" in each of {found.workers} workers"
        yield Doubt(
            code="client_busy",
            what=f"the client used {percent(client)} of a core{each}",
            advice="lower the load or use more workers; above 80 % it may bend the figures",
            where=view.level.name,
        )
    total = view.host["cpu_total_ratio"].mean()
    if total > _MACHINE_CPU:
        yield Doubt(
            code="cpu_full",
            what=f"all cores were {percent(total)} busy, so engine and client competed for them",
            advice="leave a core free: engine.threads, or a smaller engine.max_running",
            where=view.level.name,
        )


def _neighbours(info: RunInfo, view: "LevelView") -> Iterator[Doubt]:
    """Other processes on the machine (contract row 25): what neither engine nor client used."""
    cores, host = machine_of(info).cpu_cores, view.host
    if cores is None or setting(info, "launch.mode") != "process":
        return
    ours = host["engine_cpu_ratio"] + host["client_cpu_ratio"].fillna(0)
    others = float((host["cpu_total_ratio"] * cores - ours).mean())
    if others > _NEIGHBOURS_CORES:
        yield Doubt(
            code="neighbours",
            what=f"other processes used {others:.1f} of {cores} cores beside engine and client",
            advice="end them and repeat: they slow the engine down at random",
            where=view.level.name,
        )


def _capacity(info: RunInfo, view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    """A capacity that is a lower bound only raises a warning, and only where it is passed."""
    known, used = calibration_of(info), found.capacity_ratio
    limit = 1.0 if known and known.is_lower_bound else _NEAR_CAPACITY
    if known is None or used is None or used <= limit:
        return
    capacity = known.capacity_tokens_per_s * found.workers
    least = " at least" if known.is_lower_bound else ""
    is_beyond = used > 1 and not known.is_lower_bound
    yield Doubt(
        code="above_calibration",
        what=f"{number(used * capacity)} tokens/s came in, {percent(used)} of{least} the "
        f"{number(capacity)} tokens/s that the client is calibrated for on this machine "
        f"({known.route})",
        advice="share the load: load.workers; or calibrate with a higher load: bakeoff calibrate",
        severity=Severity.INVALID if is_beyond else Severity.WARN,
        where=view.level.name,
    )
