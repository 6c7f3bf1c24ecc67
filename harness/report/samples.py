"""Raw samples for the distribution figures, by the same functions as the metrics."""

from collections.abc import Iterator, Mapping

import numpy as np

from harness.analysis.candidates import workload_of
from harness.analysis.frame import Floats, request_frame
from harness.analysis.model import Cell
from harness.analysis.views import LevelView, latency_sample, level_view
from harness.store import StoredRun

_MAX_POINTS = 240


class Samples:
    """Samples of a summary's cells; each run is read once, at the first question about it."""

    def __init__(self, runs: Mapping[str, StoredRun]) -> None:
        self._runs = runs
        self._views: dict[str, dict[str, list[LevelView]]] = {}

    def pooled(self, cell: Cell, column: str) -> Floats:
        """All runs of a cell together, ascending, in s.

        `column` as in `latency_sample`: +inf where a request was cut off before it had the
        figure, so that a curve over it stays below one instead of hiding the wait.
        """
        parts = [latency_sample(view, column)[0] for view in self._cell_views(cell)]
        return np.sort(np.concatenate(parts)) if parts else np.empty(0)

    def _cell_views(self, cell: Cell) -> Iterator[LevelView]:
        for run_id in cell.run_ids:
            if run_id in self._runs:
                if run_id not in self._views:
                    self._views[run_id] = _views(self._runs[run_id])
                yield from self._views[run_id].get(cell.workload.key, [])


def _views(run: StoredRun) -> dict[str, list[LevelView]]:
    frame = request_frame(run)
    engine, host = run.engine_samples().to_pandas(), run.host_samples().to_pandas()
    views: dict[str, list[LevelView]] = {}
    for level in run.info.levels:
        view = level_view(frame, level, engine=engine, host=host)
        views.setdefault(workload_of(run.info, level).key, []).append(view)
    return views


def curve(values: Floats) -> tuple[Floats, Floats]:
    """Empirical CDF of ascending samples, at most 240 points: value, share at or below it.

    The tail keeps its points: half of them lie above the 90th percentile.
    """
    n = values.size
    if n <= _MAX_POINTS:
        ranks = np.arange(1, n + 1)
    else:
        half = _MAX_POINTS // 2
        turn = int(np.ceil(0.9 * n))
        points = np.concatenate([np.linspace(1, turn, half), np.linspace(turn, n, half)])
        ranks = np.unique(points.round().astype(np.int64))
    is_finite = np.isfinite(values[ranks - 1])
    return values[ranks - 1][is_finite], (ranks / max(1, n))[is_finite]
