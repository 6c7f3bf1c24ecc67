"""What a result says of the trace that it replayed, JSON-able."""

from typing import Any

from harness.config import TraceConf
from scenarios.traces.cells import NS_PER_S
from scenarios.traces.columns import Layout
from scenarios.traces.gather import Gathered
from scenarios.traces.source import Source

# Beyond these a recording of requests to a model is hardly in the unit that it was read in.
_ABSURD_FAST_RPS = 1000.0
_ABSURD_SLOW_RPS = 0.01


def trace_facts(
    source: Source, conf: TraceConf, layout: Layout, got: Gathered, *, span_s: float
) -> dict[str, Any]:
    """The facts of a trace whose kept rows span `span_s` after scaling; docs/traces.md lists them.

    `recorded_*` are of all rows that could be replayed, before thinning and scaling. A rate is
    rows over span, None where all came at once.

    Raises:
        ConfigError: the file can no longer be read.
    """
    rows_used = len(got.time_ns)
    recorded_span_s = (got.last_ns - got.first_ns) / NS_PER_S
    recorded_rate_rps = _rate_rps(got.usable, recorded_span_s)
    facts: dict[str, Any] = {
        "name": source.name,
        "sha256": source.sha256(),
        "format": layout.format.value,
        "format_source": "detected" if layout.is_detected else "given",
        "columns": {role: column for role, column in layout.names.items() if column},
        "time_unit": layout.time_unit,
        "time_unit_source": layout.time_unit_source,
        "time_unit_doubt": _time_unit_doubt(layout, recorded_rate_rps, recorded_span_s, got.usable),
        "rows_read": got.rows_read,
        "rows_used": rows_used,
        "rows_thinned": got.usable - rows_used,
        "skipped": dict(sorted(got.skipped.items())),
        "sorted": f"{got.out_of_order} rows were out of order" if got.out_of_order else None,
        "recorded_span_s": recorded_span_s,
        "recorded_rate_rps": recorded_rate_rps,
        "time_scale": conf.time_scale,
        "keep_ratio": conf.keep_ratio,
        "span_s": span_s,
        "mean_rate_rps": _rate_rps(rows_used, span_s),
        "sessions": len(got.session_numbers) or None,
    }
    if shipped := source.shipped:
        facts |= {
            "cut": shipped.cut,
            "licence": shipped.licence,
            "attribution": shipped.attribution,
        }
    return facts


def _rate_rps(rows: int, span_s: float) -> float | None:
    return rows / span_s if span_s > 0 else None


def _time_unit_doubt(
    layout: Layout, rate_rps: float | None, span_s: float, rows: int
) -> str | None:
    """Why the unit may be wrong, with what to say instead; None where the rate is believable."""
    unit = layout.time_unit
    is_absurd = rate_rps is not None and (
        (unit == "ms" and rate_rps > _ABSURD_FAST_RPS)
        or (unit == "s" and rate_rps < _ABSURD_SLOW_RPS)
    )
    if not is_absurd:
        return None
    other = "s" if unit == "ms" else "ms"
    return (
        f"read in {unit} ({layout.time_unit_source}), its {rows:,} rows span {span_s:g} s, "
        f"{rate_rps:g} requests/s on average, which is hardly what was recorded; if the times "
        f"are in {other}, say load.trace.time_unit={other}"
    )
