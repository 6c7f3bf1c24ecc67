"""A against B on one metric: the log-ratio of the runs' figures with Student's interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.analysis.intervals import student_quantile, student_two_sided_p
from harness.analysis.model import Cell

_MIN_PAIRS = 2
Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """`theta`: mean of ln(A/B); `error`: its standard error with `df` degrees of freedom.

    `spread`: standard deviation of the paired log-ratios (of their like, if unpaired).
    """

    theta: float
    error: float
    df: float
    spread: float
    pairs: int
    is_paired: bool

    def interval(self, confidence: float) -> tuple[float, float]:
        """Two-sided interval of theta."""
        if self.error == 0:
            return self.theta, self.theta
        half = student_quantile(self.df, (1 + confidence) / 2) * self.error
        return self.theta - half, self.theta + half

    @property
    def p_value(self) -> float:
        """Two-sided p of theta = 0."""
        if self.error == 0:
            return 1.0 if self.theta == 0 else 0.0
        return student_two_sided_p(self.theta / self.error, self.df)


def contrast(a: Cell, b: Cell, metric: str) -> Contrast | None:
    """Compare the runs' figures, paired by sweep and block.

    Runs that share fewer than two blocks, such as those of two sweeps, are compared unpaired
    (Welch). None if either side has fewer than two runs with a figure above 0.
    """
    left, right = _logs(a, metric), _logs(b, metric)
    common = sorted(left.keys() & right.keys())
    if len(common) >= _MIN_PAIRS:
        return _paired([left[place] - right[place] for place in common])
    if len(left) >= _MIN_PAIRS and len(right) >= _MIN_PAIRS:
        return _welch(list(left.values()), list(right.values()))
    return None


def common_blocks(a: Cell, b: Cell, metric: str) -> int:
    """In how many blocks both have a figure above 0."""
    return len(_logs(a, metric).keys() & _logs(b, metric).keys())


def _logs(cell: Cell, metric: str) -> Mapping[Place, float]:
    """Give ln of the figure at each (sweep, block); the mean where a block was played twice."""
    figures = cell.per_run.get(metric) or ()
    sweeps = cell.sweeps or ("",) * len(figures)
    found: dict[Place, list[float]] = {}
    for sweep, block, value in zip(sweeps, cell.blocks, figures, strict=True):
        if value is not None and math.isfinite(value) and value > 0:
            found.setdefault((sweep, block), []).append(math.log(value))
    return {place: sum(logs) / len(logs) for place, logs in found.items()}


def _paired(differences: Sequence[float]) -> Contrast:
    sample = np.asarray(differences)
    spread = float(sample.std(ddof=1))
    return Contrast(
        theta=float(sample.mean()),
        error=spread / math.sqrt(sample.size),
        df=sample.size - 1,
        spread=spread,
        pairs=int(sample.size),
        is_paired=True,
    )


def _welch(left: Sequence[float], right: Sequence[float]) -> Contrast:
    a, b = np.asarray(left), np.asarray(right)
    parts = [float(side.var(ddof=1)) / side.size for side in (a, b)]
    variance = sum(parts)
    below = sum(part**2 / (side.size - 1) for part, side in zip(parts, (a, b), strict=True))
    return Contrast(
        theta=float(a.mean() - b.mean()),
        error=math.sqrt(variance),
        df=variance**2 / below if below > 0 else a.size + b.size - 2,
        spread=math.sqrt(float(a.var(ddof=1)) + float(b.var(ddof=1))),
        pairs=int(min(a.size, b.size)),
        is_paired=False,
    )
