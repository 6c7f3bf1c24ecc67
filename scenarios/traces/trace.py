"""What a trace is once it is read, and the one line that says so."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_WHOLE_FROM = 100  # three digits are enough: 4.99, 16.5, 1,200


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recorded load, ready to be replayed: one entry a request in every array.

    `offsets_s`: arrivals in seconds, ascending, the first is 0, after thinning and time scale.
    `input_tokens`, `output_tokens`: as recorded, never 0. `hash_ids`: of each prompt's blocks of
    `block_tokens` tokens; equal ids are equal text, so equal beginnings are shared prefixes; None
    where the trace has none. `sessions`: numbers from 0 in the order of the file, -1 for a request
    outside any session; None where the trace has none. `facts`: JSON-able, see docs/traces.md.
    """

    offsets_s: "array[float]"
    input_tokens: "array[int]"
    output_tokens: "array[int]"
    hash_ids: tuple[tuple[int, ...], ...] | None
    block_tokens: int
    sessions: "array[int] | None"
    facts: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.offsets_s)


def describe(trace: Trace) -> str:
    """One line for progress output: file, rows, span, mean rate, and how its times were read."""
    facts = trace.facts
    rate = facts["mean_rate_rps"]
    span = f"{len(trace):,} requests over {_figure(facts['span_s'])} s"
    parts = [
        f"trace {facts['name']} ({facts['format']}): {span}",
        "all at once" if rate is None else f"{_figure(rate)} requests/s on average",
        _times(facts),
    ]
    if facts["time_scale"] != 1:
        parts.append(f"times x {facts['time_scale']:g}")
    if facts["keep_ratio"] != 1:
        parts.append(f"{facts['keep_ratio']:g} of the rows kept at random")
    if skipped := sum(facts["skipped"].values()):
        parts.append(f"{skipped:,} rows skipped")
    return ", ".join(parts)


def _times(facts: Mapping[str, Any]) -> str:
    source = facts["time_unit_source"]
    if source == "stamps":
        return "times are dates"
    of = {"given": "as given", "format": "by its format", "column": "by its column's name"}
    return f"times read as {facts['time_unit']} ({of.get(source, source)})"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:.3g}"
