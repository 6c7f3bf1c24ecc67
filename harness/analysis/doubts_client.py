"""Doubts about the load client: was it late, slow to read, or stamped by another clock?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.analysis.facts import setting
from harness.analysis.model import Achieved
from harness.analysis.stats import percentile
from harness.config import ValidityConf
from harness.types import Clock, Doubt, RunInfo, Severity
from harness.units import percent, seconds

if TYPE_CHECKING:
    from harness.analysis.views import LevelView

_LAG_OF_SLO = 0.01  # lag may reach 1 % of the TTFT limit
_MERGED_TOLERANCE = 0.05  # share of reads that may hold several chunks
_UNSTAMPED_TOLERANCE = 0.01  # share of reads that the kernel may leave without a stamp
_CLOCK_STEP_S = 0.001
_CONNECT_S = 0.005
_CONNECT_OF_TTFT = 0.10
_FEW_CONNECTS = 0.01  # share of requests below which connecting touches no percentile
_P99 = 0.99


def client_doubts(info: RunInfo, view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    """Doubts about the client in one level; `found`: what came of it."""
    if not len(view.measured):
        return
    limit_s = lag_limit_s(info, view)
    yield from _late(view, limit_s)
    yield from _late_reads(view, limit_s)
    yield from _stalls(view, limit_s)
    yield from _merged(view, found)
    yield from _unstamped(view, found)
    yield from _clock_step(view)
    yield from _connecting(view, found)


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


def _stalls(view: "LevelView", limit_s: float) -> Iterator[Doubt]:
    client = view.level.client
    if client is None or client.stall_p99_s is None or client.stall_p99_s <= limit_s:
        return
    worst = "" if client.stall_max_s is None else f", at worst {seconds(client.stall_max_s)}"
    yield Doubt(
        code="loop_stalls",
        what=f"the client's loop came up to {seconds(client.stall_p99_s)} late to its timers "
        f"(P99{worst}); {seconds(limit_s)} is allowed",
        advice="something held the client up: leave it a core, or share the load: load.workers",
        where=view.level.name,
    )


def _merged(view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    if found.merged_ratio is not None and found.merged_ratio > _MERGED_TOLERANCE:
        yield Doubt(
            code="merged_reads",
            what=f"{percent(found.merged_ratio)} of the reads held several token chunks",
            advice="do not compare chunk gaps: the engine sends in bursts, or the client was late",
            severity=Severity.NOTE,
            where=view.level.name,
        )


def _unstamped(view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    if found.unstamped_ratio is not None and found.unstamped_ratio > _UNSTAMPED_TOLERANCE:
        yield Doubt(
            code="unstamped_reads",
            what=f"{percent(found.unstamped_ratio)} of the reads came without the kernel's stamp "
            "and were stamped when they were read",
            advice="use plain HTTP on Linux, or watch the client's load: late reads look slow",
            where=view.level.name,
        )


def _clock_step(view: "LevelView") -> Iterator[Doubt]:
    client = view.level.client
    if client is not None and abs(client.clock_step_s) > _CLOCK_STEP_S:
        yield Doubt(
            code="clock_step",
            what=f"the wall clock jumped by {seconds(abs(client.clock_step_s))} against the "
            "monotonic one, which may spoil the stamps of the reads just then",
            advice="let the clock slew while measuring (chrony, NTP without steps), and repeat",
            where=view.level.name,
        )


def _connecting(view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    connect_s, share = found.connect_p99_s, found.connected_ratio
    if connect_s is None or share is None or share <= _FEW_CONNECTS:
        return
    ttft_s = percentile(view.measured["ttft_s"].dropna().to_numpy(), 0.5)
    is_visible = ttft_s is not None and connect_s > _CONNECT_OF_TTFT * ttft_s
    if is_visible or connect_s > _CONNECT_S:
        of_ttft = "" if not ttft_s else f", {percent(connect_s / ttft_s)} of the median TTFT"
        yield Doubt(
            code="slow_connect",
            what=f"{percent(share)} of the requests had to connect, which took up to "
            f"{seconds(connect_s)} (P99{of_ttft}) and is in their TTFT",
            advice="look at the server's backlog and keep-alive limit; TTFT from send leaves it "
            "out",
            where=view.level.name,
        )
