"""Raw samples for the distribution figures, straight from a run's Parquet tables.

Same definitions as the metrics (method sheet 1.2): TTFT from due, gaps between token chunks.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.analysis.model import Cell
from harness.store import StoredRun
from harness.types import Phase

Array = npt.NDArray[np.float64]
_MAX_POINTS = 240


def measured_rows(run: StoredRun, level_name: str) -> pa.Table:
    """Rows of requests due in the measured window of the level(s) of this name."""
    wanted = [level.index for level in run.info.levels if level.name == level_name]
    table = run.requests()
    is_level = pc.is_in(table["level"], value_set=pa.array(wanted, type=pa.int32()))
    is_measured = pc.equal(table["phase"], Phase.MEASURE.value)
    return table.filter(pc.and_(is_level, is_measured))


def ttft_s(table: pa.Table) -> Array:
    """Time to first token from due, in s, of requests that did not fail.

    +inf where a request was cut off before its first token, so that a curve over it stays
    below one instead of hiding the wait.
    """
    table = table.filter(pc.is_null(table["error"]))
    due = _floats(table["due_s"])
    first = [float("inf") if not chunks else chunks[0] for chunks in _firsts(table["chunk_s"])]
    values = np.asarray(first, dtype=np.float64) - due
    is_answered = np.isfinite(values)
    is_cut = np.asarray(pc.is_valid(table["censored_s"]).to_pylist(), dtype=bool)
    return values[is_answered | is_cut]


def gaps_s(table: pa.Table) -> Array:
    """Every gap between one token chunk and the next, in s, of requests that did not fail."""
    table = table.filter(pc.is_null(table["error"]))
    lists = table["chunk_s"].combine_chunks()
    stamps = np.asarray(lists.flatten().to_numpy(zero_copy_only=False), dtype=np.float64)
    if stamps.size < 2:  # noqa: PLR2004 (a gap has two ends)
        return np.empty(0)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    is_inside = np.ones(stamps.size, dtype=bool)
    is_inside[ends[ends < stamps.size]] = False
    return np.diff(stamps)[is_inside[1:]]


def pooled(cell: Cell, runs: Mapping[str, StoredRun]) -> tuple[Array, Array]:
    """TTFT and gaps of a cell over all its runs, both sorted, in s."""
    tables = [measured_rows(runs[i], cell.workload.level) for i in cell.run_ids if i in runs]
    return _sorted([ttft_s(t) for t in tables]), _sorted([gaps_s(t) for t in tables])


def curve(values: Array) -> tuple[Array, Array]:
    """Empirical CDF of sorted samples, at most 240 points: value, share at or below it.

    The tail keeps its points: half of them lie above the 90th percentile.
    """
    n = values.size
    if n == 0:
        return np.empty(0), np.empty(0)
    if n <= _MAX_POINTS:
        ranks = np.arange(1, n + 1)
    else:
        half = _MAX_POINTS // 2
        body = np.linspace(1, np.ceil(0.9 * n), half)
        tail = np.linspace(np.ceil(0.9 * n), n, half)
        ranks = np.unique(np.concatenate([body, tail]).round().astype(int))
    is_finite = np.isfinite(values[ranks - 1])
    return values[ranks - 1][is_finite], (ranks / n)[is_finite]


def _sorted(parts: Sequence[Array]) -> Array:
    return np.sort(np.concatenate(parts)) if parts else np.empty(0)


def _floats(column: pa.ChunkedArray) -> Array:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _firsts(column: pa.ChunkedArray) -> list[list[float] | None]:
    first = pc.list_slice(column.combine_chunks(), 0, 1)
    return first.to_pylist()  # type: ignore[no-any-return]
