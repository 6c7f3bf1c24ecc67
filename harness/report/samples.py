"""Raw samples for the distribution figures, by the same functions as the metrics."""

from collections.abc import Mapping

import numpy as np

from harness.analysis.candidates import workload_of
from harness.analysis.frame import Floats, request_frame
from harness.analysis.model import Cell
from harness.analysis.views import latency_sample, level_view
from harness.store import StoredRun

_COLUMNS = ("ttft_s", "gaps_s")
_MAX_POINTS = 240


class Samples:
    """Samples of a summary's cells; each run is read once, and only its samples are kept."""

    def __init__(self, runs: Mapping[str, StoredRun]) -> None:
        self._runs = runs
        self._read: dict[str, dict[tuple[str, str], list[Floats]]] = {}

    def pooled(self, cell: Cell, column: str) -> Floats:
        """All runs of a cell together, ascending, in s.

        `column`: `ttft_s` or `gaps_s`, as in `latency_sample`: +inf where a request failed or
        was cut off before it had the figure, so that a curve over it stays below one instead of
        hiding the wait.
        """
        parts: list[Floats] = []
        for run_id in cell.run_ids:
            if run_id in self._runs and run_id not in self._read:
                self._read[run_id] = _samples(self._runs[run_id])
            parts += self._read.get(run_id, {}).get((cell.workload.key, column), [])
        return np.sort(np.concatenate(parts)) if parts else np.empty(0)


def _samples(run: StoredRun) -> dict[tuple[str, str], list[Floats]]:
    frame = request_frame(run)
    engine, host = run.engine_samples().to_pandas(), run.host_samples().to_pandas()
    samples: dict[tuple[str, str], list[Floats]] = {}
    for level in run.info.levels:
        view = level_view(frame, level, engine=engine, host=host)
        key = workload_of(run.info, level).key
        for column in _COLUMNS:
            samples.setdefault((key, column), []).append(latency_sample(view, column)[0])
    return samples


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
