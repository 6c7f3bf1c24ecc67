"""A level that replays a trace: which rows, when they are due, how long they are, what was cut."""

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from harness.config import Lengths, LevelConf, ScenarioConf, TraceConf
from scenarios.traces import Trace, read_trace
from scenarios.wanted import Wanted


def level_trace(conf: TraceConf, seed: str) -> Trace:
    """The trace, read once for all that asks for it: plan, estimate and warm-up.

    Raises:
        ConfigError: the trace cannot be read, or has no row to play.
    """
    return _kept(msgspec.json.encode(conf), _version(conf.path), seed)


@lru_cache(maxsize=4)
def _kept(conf: bytes, version: tuple[int, int] | None, seed: str) -> Trace:
    del version  # only tells one state of the file from another
    return read_trace(msgspec.json.decode(conf, type=TraceConf), seed=seed)


def _version(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def trace_facts(conf: TraceConf, trace: Trace) -> dict[str, Any]:
    """What makes the rows of a replayed trace: its content by hash, and what is done to it."""
    read = {key: trace.facts[key] for key in ("sha256", "format", "columns", "time_unit")}
    return {**read, "time_scale": conf.time_scale, "keep_ratio": conf.keep_ratio}


def trace_due_s(level: LevelConf, trace: Trace) -> "array[float]":
    """Due times of the rows that are played, in s, shape (rows,): ascending from 0.

    Those below `duration_s`, at most the first `requests`.
    """
    count = len(trace)
    if level.duration_s is not None:
        count = bisect_left(trace.offsets_s, level.duration_s)
    if level.requests is not None:
        count = min(count, level.requests)
    return trace.offsets_s[:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSupply:
    """What is wanted of each row: with `scenario.lengths=trace` its lengths and its blocks.

    Lengths are at most the scenario's, which keep them inside the engine's window. `first`: the
    prompt of the first row.
    """

    trace: Trace
    scenario: ScenarioConf
    first: int = 0

    def wanted(self, place: int) -> Wanted:
        """Row `place` of the trace."""
        if self.scenario.lengths is not Lengths.TRACE:
            return Wanted(index=self.first + place)
        input_tokens = min(self.trace.input_tokens[place], self.scenario.input_tokens)
        blocks: tuple[int, ...] = ()
        if self.trace.hash_ids is not None:
            # a clipped prompt has no use for the blocks beyond its end
            whole = -(-input_tokens // self.trace.block_tokens)
            blocks = self.trace.hash_ids[place][:whole]
        return Wanted(
            index=self.first + place,
            input_tokens=input_tokens,
            output_tokens=min(self.trace.output_tokens[place], self.scenario.output_tokens),
            blocks=blocks,
            block_tokens=self.trace.block_tokens,
        )


def output_tokens_sum(trace: Trace, scenario: ScenarioConf, rows: int) -> int:
    """Tokens that the answers to the first `rows` rows have together, clipped."""
    return sum(min(tokens, scenario.output_tokens) for tokens in trace.output_tokens[:rows])


def played_trace(trace: Trace, scenario: ScenarioConf, rows: int) -> Mapping[str, Any]:
    """What was done to a trace, for `Level.trace`: the reader's facts, and what is played.

    `rows_played`: of `rows_used`, as many as the level's end lets in. `span_s`, `mean_rate_rps`:
    of these; a rate is rows over span, None where all come at once. `clipped_input`,
    `clipped_output`: how many are longer than the scenario allows; None if the scenario's lengths
    are not the trace's.
    """
    span_s = trace.offsets_s[rows - 1] if rows else 0.0
    is_clipped = scenario.lengths is Lengths.TRACE
    clipped_input = _above(trace.input_tokens[:rows], scenario.input_tokens)
    clipped_output = _above(trace.output_tokens[:rows], scenario.output_tokens)
    return {
        **trace.facts,
        "rows_played": rows,
        "span_s": span_s,
        "mean_rate_rps": rows / span_s if span_s > 0 else None,
        "clipped_input": clipped_input if is_clipped else None,
        "clipped_output": clipped_output if is_clipped else None,
    }


def _above(tokens: "array[int]", limit: int) -> int:
    return sum(one > limit for one in tokens)
