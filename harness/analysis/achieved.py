"""What a level was asked for, what came of it, and what the load client saw of itself."""

from typing import TYPE_CHECKING

import numpy as np

from harness.analysis.calibration import calibration_of
from harness.analysis.candidates import think_s
from harness.analysis.in_flight import mean_in_flight, spans
from harness.analysis.model import Achieved
from harness.analysis.stats import percentile
from harness.config import Shape
from harness.types import ErrorClass, RunInfo

if TYPE_CHECKING:
    from harness.analysis.stats import Floats
    from harness.analysis.views import LevelView

_P99 = 0.99
_COUNTS_MISSING = 2  # the store's version from which a level says whether it was cut


def achieved(info: RunInfo, view: "LevelView", *, warmup: int = 0) -> Achieved:
    """What came of one level; `warmup`: requests of the run's warm-up, which are in no figure."""
    lag, connect = _known(view.column("lag_s")), _known(view.column("connect_s"))
    client, errors, n = view.level.client, view.measured["error"], len(view.measured)
    rate, rate_reached = rates(info, view)
    return Achieved(
        users=view.level.users,
        users_reached=users_reached(info, view),
        peak_in_flight=client.peak_in_flight or None if client else None,
        rate_rps=rate,
        rate_reached_rps=rate_reached,
        lag_mean_s=float(lag.mean()) if lag.size else None,
        lag_p99_s=percentile(lag, _P99),
        lag_max_s=float(lag.max()) if lag.size else None,
        connected_ratio=connect.size / n if n else None,
        connect_p99_s=percentile(connect, _P99),
        cpu_ratio=client_cpu_ratio(view),
        stall_p99_s=client.stall_p99_s if client else None,
        clock_step_s=client.clock_step_s if client else None,
        unstamped_ratio=unstamped_ratio(view),
        merged_ratio=_of_reads(view, float(view.measured["merged_reads"].sum())),
        retried=int((view.column("attempts") > 1).sum()),
        rate_limited=int((errors == ErrorClass.RATE_LIMITED.value).sum()),
        timed_out=int((errors == ErrorClass.TIMEOUT.value).sum()),
        warmup=warmup,
        workers=client.workers if client else 1,
        capacity_ratio=capacity_ratio(info, view),
    )


def rates(
    info: RunInfo, view: "LevelView", *, slack_s: float = 0.005
) -> tuple[float | None, float | None]:
    """Requests a second of an open level: due in its window, and sent in it of those.

    `slack_s`: how long after the window's end still counts as in it. What the plan held and was
    never begun counts as due, unless the level was cut; not of sessions, whose turns are due only
    when the one before has ended. (None, None) for a closed level.
    """
    level, n = view.level, len(view.measured)
    if level.users is not None or view.window_s <= 0 or not n:
        return None, None
    is_planned = level.shape != Shape.SESSIONS and not level.is_cut
    knows = info.schema_version >= _COUNTS_MISSING and is_planned
    missing = max(0, level.planned - len(view.rows)) if knows else 0
    sent = int((view.column("sent_s") <= level.window_end_s + slack_s).sum())
    return (n + missing) / view.window_s, sent / view.window_s


def users_reached(info: RunInfo, view: "LevelView") -> float | None:
    """Mean users of a closed level that had a request under way or were thinking; None if open."""
    if view.level.users is None or view.window_s <= 0 or not len(view.measured):
        return None
    edges = np.asarray([view.level.window_start_s, view.level.window_end_s])
    found = spans(view)
    busy = float(mean_in_flight(found.sent_s, found.end_s, edges)[0])
    thinking = found.end_s + think_s(info, view.level)
    return busy + float(mean_in_flight(found.end_s, thinking, edges)[0])


def client_cpu_ratio(view: "LevelView") -> float | None:
    """CPU time of the client over the level's length, a worker; from samples in older runs."""
    client, level = view.level.client, view.level
    if client is not None and client.cpu_s is not None:
        span_s = max(level.drained_s, level.window_end_s) - level.window_start_s
        return client.cpu_s / (span_s * max(1, client.workers)) if span_s > 0 else None
    sampled = float(view.host["client_cpu_ratio"].mean())
    return None if np.isnan(sampled) else sampled


def unstamped_ratio(view: "LevelView") -> float | None:
    """Reads without the kernel's stamp over all reads; None where they were not counted."""
    client = view.level.client
    return None if client is None else _of_reads(view, float(client.unstamped_reads))


def capacity_ratio(info: RunInfo, view: "LevelView") -> float | None:
    """Output tokens/s over what the client was calibrated to carry, all its workers together."""
    from harness.analysis.rates import rate_value  # noqa: PLC0415 pandas

    known, rate = calibration_of(info), rate_value(view, "output_tokens_per_s")
    if known is None or rate is None:
        return None
    workers = max(1, view.level.client.workers) if view.level.client else 1
    return rate / (known.capacity_tokens_per_s * workers)


def _of_reads(view: "LevelView", count: float) -> float | None:
    reads = float(np.nansum(view.every("reads")))
    return count / reads if reads > 0 else None


def _known(values: "Floats") -> "Floats":
    return values[~np.isnan(values)]
