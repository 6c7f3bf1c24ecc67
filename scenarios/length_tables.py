"""The lengths of real services as tables of quantiles: shipped ones by name, or a trace's own.

A shipped table is `data/lengths/<name>.json`, cut down from a public trace (see NOTICE): its
quantiles at the shares 0, 1/512, ..., 1, by the inverse of the empirical distribution.
"""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from harness.config import TraceConf
from harness.errors import ConfigError

CELLS = 512
SIDES = ("input", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthTable:
    """Input and output lengths of one service.

    `input_tokens`, `output_tokens`: quantiles at the shares k / CELLS, shape (CELLS + 1,),
    ascending; the first is the shortest, the last the longest. `facts`: source, licence, rows,
    as the plan keeps them.
    """

    input_tokens: Sequence[int]
    output_tokens: Sequence[int]
    facts: Mapping[str, Any]

    def quantile(self, side: str, share: float) -> int:
        """The length (tokens) with this share (0..1) at or below it, linear within a cell."""
        values = self._values(side)
        place = min(max(share, 0.0), 1.0) * CELLS
        cell = min(int(place), CELLS - 1)
        return round(values[cell] + (place - cell) * (values[cell + 1] - values[cell]))

    def share_at_most(self, side: str, tokens: int) -> float:
        """The share (0..1) of the lengths that `quantile` gives that are at most `tokens`."""
        values = self._values(side)
        edge = tokens + 0.5  # where `quantile` rounds up
        cell = bisect_right(values, edge) - 1
        if cell < 0 or cell >= CELLS:
            return 0.0 if cell < 0 else 1.0
        return (cell + (edge - values[cell]) / (values[cell + 1] - values[cell])) / CELLS

    def _values(self, side: str) -> Sequence[int]:
        return self.input_tokens if side == "input" else self.output_tokens


def quantiles(lengths: Sequence[int]) -> tuple[int, ...]:
    """The CELLS + 1 quantiles of a sample: x_(ceil(n p)), and the shortest at p = 0."""
    ordered = sorted(lengths)
    count = len(ordered)
    ranks = [max(1, math.ceil(count * k / CELLS)) for k in range(CELLS + 1)]
    return tuple(int(ordered[rank - 1]) for rank in ranks)


def table_names() -> tuple[str, ...]:
    """The tables that ship with bakeoff, in the order of the alphabet."""
    folder = files("scenarios").joinpath("data", "lengths")
    return tuple(sorted(path.name.removesuffix(".json") for path in folder.iterdir()))


@cache
def length_table(source: str) -> LengthTable:
    """The table of a shipped name, or of the rows of a trace file.

    Raises:
        ConfigError: neither a table's name nor a file, or no trace in the file.
    """
    if source in table_names():
        path = files("scenarios").joinpath("data", "lengths", f"{source}.json")
        data = path.read_bytes()
        content = {**msgspec.json.decode(data), "sha256": hashlib.sha256(data).hexdigest()}
        sides = {f"{side}_tokens": tuple(content.pop(f"{side}_tokens")) for side in SIDES}
        return LengthTable(facts={"source": source, **content}, **sides)
    if not Path(source).is_file():
        raise ConfigError(
            f"scenario.length_source={source}: neither a file nor a length table; the tables are: "
            f"{', '.join(table_names())}"
        )
    return _of_trace(source)


def _of_trace(source: str) -> LengthTable:
    from scenarios.traces import read_trace  # noqa: PLC0415  # only where a trace is read

    trace = read_trace(TraceConf(path=source), seed="lengths")
    return LengthTable(
        input_tokens=quantiles(trace.input_tokens),
        output_tokens=quantiles(trace.output_tokens),
        facts={"source": Path(source).name, "sha256": trace.facts["sha256"], "rows": len(trace)},
    )
