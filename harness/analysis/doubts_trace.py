"""What was done to a replayed trace, stated beside its result."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from harness.types import Doubt, Severity
from harness.units import count, percent

if TYPE_CHECKING:
    from harness.analysis.views import LevelView

_UNIT_DOUBT = "time_unit_doubt"


def trace_doubts(view: "LevelView") -> Iterator[Doubt]:
    """A note of what changed between the trace and what was played; a warning on its time unit."""
    trace = view.level.trace
    if not trace:
        return
    told = trace_words(trace)
    if told:
        yield Doubt(
            code="trace_changed",
            what=f"the trace was not played as recorded: {told}",
            advice="scaling times changes how bursty the load is per token; thinning does not",
            severity=Severity.NOTE,
            where=view.level.name,
        )
    if trace.get(_UNIT_DOUBT):
        said = trace[_UNIT_DOUBT]
        yield Doubt(
            code=_UNIT_DOUBT,
            what=said if isinstance(said, str) else "the trace's times may be in another unit",
            advice="say which: load.trace.time_unit=s or ms",
            where=view.level.name,
        )


def trace_words(trace: Mapping[str, Any]) -> str:
    """What was done to a trace, such as `times x 0.5, 3 prompts clipped`; empty if nothing."""
    told = []
    if (scale := _number(trace, "time_scale", 1)) != 1:
        told.append(f"times x {scale:g}")
    if (kept := _number(trace, "keep_ratio", 1)) != 1:
        thinned = _number(trace, "rows_thinned")
        told.append(f"{percent(kept)} of the rows kept ({count(int(thinned))} left out at random)")
    used, played = _number(trace, "rows_used"), _number(trace, "rows_played")
    if 0 < played < used:
        told.append(f"its first {count(int(played))} of {count(int(used))} rows")
    for key, what in (("clipped_input", "prompts"), ("clipped_output", "answers")):
        if clipped := _number(trace, key):
            told.append(f"{count(int(clipped))} {what} clipped to the scenario's longest")
    skipped = trace.get("skipped")
    if isinstance(skipped, Mapping) and skipped:
        reasons = ", ".join(f"{times} {reason}" for reason, times in skipped.items())
        told.append(f"rows skipped: {reasons}")
    if isinstance(trace.get("sorted"), str):
        told.append(f"sorted by time ({trace['sorted']})")
    return ", ".join(told)


def _number(trace: Mapping[str, Any], key: str, default: float = 0) -> float:
    value = trace.get(key)
    return float(value) if isinstance(value, int | float) else default
