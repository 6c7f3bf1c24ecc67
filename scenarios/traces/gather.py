"""Rows become columns: cells are judged, what cannot be replayed is skipped and counted."""

import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from harness.config import TraceFormat
from harness.errors import ConfigError
from scenarios.traces.cells import read_tokens
from scenarios.traces.columns import Layout
from scenarios.traces.tables import Row

_SHOWN_CHARACTERS = 40


@dataclass(slots=True, kw_only=True)
class Gathered:
    """The kept rows as columns, in the order of the file, and the count of all others.

    `time_ns`: as recorded. `sessions`: see `Trace`. `usable`, `first_ns`, `last_ns` (earliest and
    latest), `out_of_order`: of all rows that could be replayed, before thinning.
    """

    time_ns: "array[int]" = field(default_factory=lambda: array("q"))
    input_tokens: "array[int]" = field(default_factory=lambda: array("L"))
    output_tokens: "array[int]" = field(default_factory=lambda: array("L"))
    sessions: "array[int]" = field(default_factory=lambda: array("l"))
    session_numbers: dict[str, int] = field(default_factory=dict)
    hash_ids: list[tuple[int, ...]] = field(default_factory=list)
    rows_read: int = 0
    usable: int = 0
    first_ns: int = 0
    last_ns: int = 0
    out_of_order: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def session_number(self, cell: Any) -> int:
        """A session's number by its first appearance; -1 for a row that names none."""
        name = "" if cell is None else str(cell).strip()
        if not name:
            return -1
        return self.session_numbers.setdefault(name, len(self.session_numbers))

    def count(self, time_ns: int) -> None:
        """Count a row that can be replayed, kept or not."""
        self.usable += 1
        if self.usable == 1:
            self.first_ns = self.last_ns = time_ns
        elif time_ns < self.last_ns:
            self.out_of_order += 1
            self.first_ns = min(self.first_ns, time_ns)
        else:
            self.last_ns = time_ns

    def sort(self) -> None:
        """Put the kept rows in the order of their times; equal times stay as they were."""
        order = sorted(range(len(self.time_ns)), key=self.time_ns.__getitem__)
        for column in (self.time_ns, self.input_tokens, self.output_tokens, self.sessions):
            column[:] = array(column.typecode, (column[row] for row in order))
        self.hash_ids = [self.hash_ids[row] for row in order] if self.hash_ids else []


def gather(
    rows: Iterable[Row],
    stamp: Callable[[Any], int],
    layout: Layout,
    keep_ratio: float,
    rng: random.Random,
    name: str,
) -> Gathered:
    """All rows of trace `name`, thinned: row i is kept where the i-th draw is below `keep_ratio`.

    Every row takes its draw, so what is kept at one ratio is kept at every higher one.
    `stamp` reads a time cell to nanoseconds.

    Raises:
        ConfigError: a cell holds what is not allowed there.
    """
    got = Gathered()
    no_output = "failed" if layout.format is TraceFormat.BURSTGPT else "no_output_tokens"
    for row in rows:
        got.rows_read += 1
        is_kept = rng.random() < keep_ratio
        time_ns, input_tokens, output_tokens = _numbers(row, stamp, layout, name)
        if not output_tokens:
            got.skipped[no_output] += 1
        elif not input_tokens:
            got.skipped["no_input_tokens"] += 1
        else:
            got.count(time_ns)
            if is_kept:
                got.time_ns.append(time_ns)
                got.input_tokens.append(input_tokens)
                got.output_tokens.append(output_tokens)
                got.sessions.append(got.session_number(row[4]))
                got.hash_ids.append(row[5] or ())
    return got


def _numbers(
    row: Row, stamp: Callable[[Any], int], layout: Layout, name: str
) -> tuple[int, int, int]:
    """Time in ns, input and output tokens of one row."""
    line, time, inputs, outputs, _, _ = row
    role, cell = "time", time
    try:
        time_ns = stamp(cell)
        role, cell = "input_tokens", inputs
        input_tokens = read_tokens(cell)
        role, cell = "output_tokens", outputs
        return time_ns, input_tokens, read_tokens(cell)
    except ValueError as error:
        shown = "nothing" if cell is None or cell == "" else str(cell)[:_SHOWN_CHARACTERS]
        raise ConfigError(
            f"trace {name}, line {line}: {layout.names[role]}={shown}: must be {error}"
        ) from error
