"""Doubts about the load client: was it late, starved, or slow to read?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.analysis.facts import machine_of, setting
from harness.analysis.stats import percentile
from harness.config import ValidityConf
from harness.types import Clock, Doubt, RunInfo, Severity
from harness.units import percent, seconds

if TYPE_CHECKING:
    from harness.analysis.views import LevelView

_LAG_OF_SLO = 0.01  # lag may reach 1 % of the TTFT limit
_MERGED_TOLERANCE = 0.05  # share of reads that may hold several chunks
_CLIENT_CPU = 0.8  # of one core; one client core is one worker
_MACHINE_CPU = 0.95
_NEIGHBOURS_CORES = 0.25  # beside the engine, the client and our own telemetry
_P99 = 0.99


def client_doubts(info: RunInfo, view: "LevelView") -> Iterator[Doubt]:
    """Doubts about the client in one level."""
    rows = view.measured
    if not len(rows):
        return
    limit_s = lag_limit_s(info, view)
    yield from _late(view, limit_s)
    yield from _late_reads(view, limit_s)
    yield from _merged(view)
    yield from _busy(view)
    yield from _neighbours(info, view)


def lag_limit_s(info: RunInfo, view: "LevelView") -> float:
    """How late a request may leave: max(validity.max_lag_s, 1 % of the TTFT limit)."""
    limit = float(setting(info, "validity.max_lag_s", ValidityConf.max_lag_s))
    ttft_s = view.slo.ttft_s if view.slo else None
    return max(limit, _LAG_OF_SLO * ttft_s) if ttft_s else limit


def _late(view: "LevelView", limit_s: float) -> Iterator[Doubt]:
    lag = view.measured["lag_s"].dropna().to_numpy()
    p99, late = percentile(lag, _P99), int((lag > limit_s).sum())
    if p99 is None or p99 <= limit_s:
        return
    # One hiccup among few requests does not show that the client was the bottleneck.
    is_once = late == 1
    yield Doubt(
        code="client_late",
        what=f"{late} of {lag.size} requests left more than {seconds(limit_s)} late "
        f"(P99 lag {seconds(p99)})",
        advice="the client was the bottleneck: leave it a core (engine.threads), or lower the load",
        severity=Severity.WARN if is_once else Severity.INVALID,
        where=view.level.name,
    )


def _late_reads(view: "LevelView", limit_s: float) -> Iterator[Doubt]:
    rows = view.measured
    late_s = percentile(rows["late_s"].dropna().to_numpy(), _P99)
    if late_s is None or late_s <= limit_s:
        return
    is_bent = bool((rows["clock"] == Clock.USER.value).any())
    effect = "figures are that much too slow" if is_bent else "stamps are the kernel's and hold"
    yield Doubt(
        code="late_reads",
        what=f"bytes waited up to {seconds(late_s)} (P99) before they were read; {effect}",
        advice="leave the client a core of its own: engine.threads",
        severity=Severity.WARN if is_bent else Severity.NOTE,
        where=view.level.name,
    )


def _merged(view: "LevelView") -> Iterator[Doubt]:
    reads = float(view.measured["reads"].sum())
    merged = float(view.measured["merged_reads"].sum())
    if reads > 0 and merged > _MERGED_TOLERANCE * reads:
        yield Doubt(
            code="merged_reads",
            what=f"{percent(merged / reads)} of the reads held several token chunks",
            advice="do not compare chunk gaps: the engine sends in bursts, or the client was late",
            severity=Severity.NOTE,
            where=view.level.name,
        )


def _busy(view: "LevelView") -> Iterator[Doubt]:
    client = view.host["client_cpu_ratio"].mean()
    if client > _CLIENT_CPU:
        yield Doubt(
            code="client_busy",
            what=f"the client used {percent(client)} of a core",
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
