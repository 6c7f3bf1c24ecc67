"""A trace from its file to arrivals: read, sorted, thinned, scaled, and stated."""

import math
from array import array
from dataclasses import replace
from itertools import chain

from harness.config import TimeUnit, TraceConf
from harness.errors import ConfigError
from scenarios.streams import stream
from scenarios.traces.blocks import find_block_tokens
from scenarios.traces.cells import NS_PER_S, is_date, stamp_reader
from scenarios.traces.columns import Layout, find_layout
from scenarios.traces.facts import trace_facts
from scenarios.traces.gather import Gathered, gather
from scenarios.traces.source import Source, find_source, opened
from scenarios.traces.tables import open_table
from scenarios.traces.trace import Trace


def read_trace(conf: TraceConf, *, seed: str) -> Trace:
    """The trace that `conf` names, a pure function of (the file, conf, seed).

    Times are read exactly to 100 ns and sorted; rows that cannot be replayed (no input or no
    output tokens) are skipped and counted; then `keep_ratio` thins and `time_scale` stretches
    (method.md 2.2, replay rule). All of it is in the trace's facts.

    Raises:
        ConfigError: the file cannot be read, or a row is not what its format says; the message
            names file, line, value and what is allowed.
    """
    conf.check("load.trace")
    source = find_source(conf.path)
    layout, got = _read(source, conf, seed)
    offsets_s = _offsets_s(got, conf.time_scale)
    hash_ids = tuple(got.hash_ids) if any(got.hash_ids) else None
    block_tokens = find_block_tokens(got.input_tokens, hash_ids, source.name)
    facts = {
        **trace_facts(source, conf, layout, got, span_s=offsets_s[-1]),
        "block_tokens": block_tokens if hash_ids else None,
    }
    return Trace(
        offsets_s=offsets_s,
        input_tokens=got.input_tokens,
        output_tokens=got.output_tokens,
        hash_ids=hash_ids,
        block_tokens=block_tokens,
        sessions=got.sessions if got.session_numbers else None,
        facts=facts,
    )


def _read(source: Source, conf: TraceConf, seed: str) -> tuple[Layout, Gathered]:
    """The file's rows that are kept, by time, and how they were read; never none."""
    with opened(source) as text:
        table = open_table(text, source.name)
        layout = find_layout(conf, table.container, table.columns, source.name)
        rows = table.rows(layout.names)
        first = next(rows, None)
        if first is None:
            raise ConfigError(f"trace {source.name}: has a header but no rows")
        first_time = first[1]
        stamp = stamp_reader(first_time, layout.time_unit)
        if is_date(first_time):
            _refuse_unit_of_dates(conf, source)
            layout = replace(layout, time_unit="date", time_unit_source="stamps")
        rng = stream(seed, "thinning", 0)
        got = gather(chain([first], rows), stamp, layout, conf.keep_ratio, rng, source.name)
    if not got.time_ns:
        raise _nothing_left(source, conf, got)
    if got.out_of_order:
        got.sort()
    return layout, got


def _offsets_s(got: Gathered, time_scale: float) -> "array[float]":
    first_ns = got.time_ns[0]
    # int / int is rounded once; a float of nanoseconds would lose some after 104 days
    offsets_s = array("d", ((ns - first_ns) / NS_PER_S * time_scale for ns in got.time_ns))
    if not math.isfinite(offsets_s[-1]):
        raise ConfigError(
            f"load.trace.time_scale={time_scale:g}: must leave a finite span; the trace takes "
            f"{(got.time_ns[-1] - first_ns) / NS_PER_S:g} s as recorded"
        )
    return offsets_s


def _refuse_unit_of_dates(conf: TraceConf, source: Source) -> None:
    if conf.time_unit is not TimeUnit.AUTO:
        raise ConfigError(
            f"load.trace.time_unit={conf.time_unit.value}: must be auto, since the times of trace "
            f"{source.name} are dates"
        )


def _nothing_left(source: Source, conf: TraceConf, got: Gathered) -> ConfigError:
    if got.usable:
        return ConfigError(
            f"load.trace.keep_ratio={conf.keep_ratio:g}: must keep a row, but keeps none of the "
            f"{got.usable} of trace {source.name}"
        )
    why = ", ".join(f"{reason}: {count}" for reason, count in sorted(got.skipped.items()))
    return ConfigError(
        f"trace {source.name}: none of its {got.rows_read} rows can be replayed ({why}); a row "
        "needs at least 1 input and 1 output token"
    )
