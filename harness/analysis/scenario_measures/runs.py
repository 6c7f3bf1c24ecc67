"""The runs of one candidate at one scenario, and figures of parts of their requests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.analysis.candidates import workload_of
from harness.analysis.intervals import estimate_mean
from harness.analysis.stats import Floats, estimate_percentile, percentile
from harness.analysis.views import Flags, LevelView, latency_sample
from harness.types import Estimate, RunInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedRun:
    """One run with its levels in the order played."""

    info: RunInfo
    views: tuple[LevelView, ...]

    @property
    def by_level(self) -> dict[str, LevelView]:
        """Its levels by name; those where nothing but failures was measured are left out."""
        return {
            workload_of(self.info, view.level).level: view
            for view in self.views
            if not view.is_empty
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some of the measured requests of a level."""

    view: LevelView
    keep: Flags

    def sample(self, column: str) -> tuple[Floats, Floats]:
        """As `latency_sample`."""
        return latency_sample(self.view, column, self.keep)

    def percentile(self, column: str, p: float) -> float | None:
        """An order statistic of this run alone; None where it falls on a lost request."""
        value = percentile(self.sample(column)[0], p)
        return None if value is None or math.isinf(value) else value


def levels_of(runs: Sequence[PlayedRun]) -> dict[str, list[LevelView]]:
    """The views of each level over all runs, by the level's name, in the order played."""
    found: dict[str, list[LevelView]] = {}
    for run in runs:
        for name, view in run.by_level.items():
            found.setdefault(name, []).append(view)
    return found


def parts_of(views: Sequence[LevelView], column: str) -> dict[Any, list[Part]]:
    """The requests of a level by what they have in `column`; those without it are left out."""
    found: dict[Any, list[Part]] = {}
    for view in views:
        values = view.measured[column]
        for value in sorted(values.dropna().unique()):
            keep = (values == value).to_numpy(dtype=bool)
            found.setdefault(value, []).append(Part(view=view, keep=keep))
    return found


def pooled(parts: Sequence[Part], column: str, p: float) -> Estimate:
    """A percentile over all runs together, with its interval."""
    samples = [part.sample(column) for part in parts]
    values, floors = [v for v, _ in samples], [f for _, f in samples]
    return estimate_percentile(values, p, floors=floors)


def mean_input(parts: Sequence[Part]) -> float:
    """Mean planned length of the prompts, in tokens."""
    lengths = [part.view.column("planned_input_tokens")[part.keep] for part in parts]
    return float(np.concatenate(lengths).mean())


def ratio_estimate(ratios: Sequence[float | None]) -> Estimate:
    """Geometric mean of one ratio a run, with Student's interval of its logarithm."""
    logs = [math.log(ratio) for ratio in ratios if ratio is not None and ratio > 0]
    mean = estimate_mean(logs)
    if mean.value is None:
        return mean
    ends = [None if end is None else math.exp(end) for end in (mean.ci_low, mean.ci_high)]
    return Estimate(
        value=math.exp(mean.value),
        ci_low=ends[0],
        ci_high=ends[1],
        n=mean.n,
        n_eff=mean.n_eff,
        needed=mean.needed,
    )


def over(above: float | None, below: float | None) -> float | None:
    """A ratio, None if either side is missing or the lower one is 0."""
    return None if above is None or not below else above / below
