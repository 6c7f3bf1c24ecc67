"""Measures of single requests: how far the tail is from the middle, how fast prompts are read."""

from collections.abc import Callable, Sequence

import numpy as np

from harness.analysis.intervals import estimate_mean
from harness.analysis.rates import rate_value
from harness.analysis.scenario_measures.runs import (
    Part,
    PlayedRun,
    levels_of,
    over,
    ratio_estimate,
)
from harness.analysis.scenario_measures.table import Figure, Found
from harness.analysis.stats import Floats, percentile
from harness.analysis.views import LevelView
from harness.types import Estimate
from harness.units import estimate

_TIMES = "×"
_MIDDLE, _TAIL = 0.5, 0.99


def tail_ratio(runs: Sequence[PlayedRun]) -> Found:
    """P99 over P50 of TTFT and chunk gaps, in each run: what the unlucky ones feel."""
    figures: list[Figure] = []
    for level, views in levels_of(runs).items():
        for title, column in (("TTFT", "ttft_s"), ("chunk gap", "gaps_s")):
            value = ratio_estimate([_tail(view, column) for view in views])
            label = f"{title}, P99 over P50"
            figures.append(Figure(label=label, unit=_TIMES, value=value, level=level))
    worst = _largest([figure for figure in figures if figure.value.value is not None])
    if worst is None:
        return [], "no level has a P99"
    return figures, f"{worst.label} is {estimate(worst.value, _TIMES)} at {worst.level}"


def _tail(view: LevelView, column: str) -> float | None:
    part = Part(view=view, keep=np.ones(len(view.measured), dtype=bool))
    return over(part.percentile(column, _TAIL), part.percentile(column, _MIDDLE))


def prefill_rate(runs: Sequence[PlayedRun]) -> Found:
    """Prompt tokens over the wait for the first token since it was sent, the median request."""
    figures = _each_level(runs, "prompt tokens/s of the median request", "tokens/s", _prefill)
    best = _largest(figures)
    if best is None:
        return [], "the server does not count its prompt tokens"
    rate = estimate(best.value, "tokens/s")
    return figures, f"a prompt is read at {rate} or less, waiting included, at {best.level}"


def _prefill(view: LevelView) -> float | None:
    ok = view.flag("is_ok")
    prompt, cached = view.column("prompt_tokens")[ok], view.column("cached_tokens")[ok]
    return _median((prompt - np.nan_to_num(cached)) / view.column("ttft_net_s")[ok])


def interactivity(runs: Sequence[PlayedRun]) -> Found:
    """Tokens a second that one user sees, beside those that the server gives to all."""
    user = _each_level(runs, "one user, median", "tokens/s", _user_rate)
    every = _each_level(
        runs, "all users", "tokens/s", lambda view: rate_value(view, "output_tokens_per_s")
    )
    best = _largest(user)
    if best is None:
        return [], "no answer has two chunks"
    rate = estimate(best.value, "tokens/s")
    return [*user, *every], f"one user sees {rate} at most, at {best.level}"


def _user_rate(view: LevelView) -> float | None:
    return _median(1.0 / view.column("tpot_s")[view.flag("is_ok")])


def _median(values: Floats) -> float | None:
    return percentile(values[np.isfinite(values)], _MIDDLE)


def _each_level(
    runs: Sequence[PlayedRun],
    label: str,
    unit: str,
    of: Callable[[LevelView], float | None],
) -> list[Figure]:
    """One figure a level, the mean over runs; levels without one are left out."""
    figures = []
    for level, views in levels_of(runs).items():
        value: Estimate = estimate_mean([x for x in map(of, views) if x is not None])
        if value.value is not None:
            figures.append(Figure(label=label, unit=unit, value=value, level=level))
    return figures


def _largest(figures: Sequence[Figure]) -> Figure | None:
    return max(figures, key=lambda figure: figure.value.value or 0.0, default=None)
