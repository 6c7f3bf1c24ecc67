"""Doubts about what the engine says of itself: against our own stamps, and how often it spoke."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from harness.analysis.measure import kv_difference
from harness.types import Doubt, RunInfo, Severity
from harness.units import number, percent

if TYPE_CHECKING:
    from harness.analysis.views import LevelView

_KV_DIFFERENCE = 0.10  # of the pool
_EVERY_S = 1.0
_SLACK = 1.2
_LEAST_WINDOW_S = 5.0


def engine_doubts(info: RunInfo, view: "LevelView") -> Iterator[Doubt]:
    """Doubts about the engine's own figures in one level."""
    if not len(view.measured):
        return
    yield from _kv(view)
    yield from _sparse(info, view)


def _kv(view: "LevelView") -> Iterator[Doubt]:
    found = kv_difference(view)
    if found is None or abs(found.ours - found.engine) <= _KV_DIFFERENCE:
        return
    yield Doubt(
        code="kv_differs",
        what=f"the engine says that {percent(found.engine)} of its KV cache was in use on average; "
        f"the tokens of the answers under way are {percent(found.ours)} of it",
        advice="beginnings that requests share, blocks kept after an answer and preemptions "
        "explain a difference; else the capacity or the metric is misread",
        severity=Severity.NOTE,
        where=view.level.name,
    )


def _sparse(info: RunInfo, view: "LevelView") -> Iterator[Doubt]:
    """Fewer engine figures than one a second, of an engine that has them."""
    has_figures = info.capabilities is not None and info.capabilities.metrics
    if not has_figures or view.window_s < _LEAST_WINDOW_S:
        return
    t_s = view.engine["t_s"].to_numpy(dtype=np.float64)
    every_s = float(np.median(np.diff(t_s))) if t_s.size > 1 else None
    if every_s is not None and every_s <= _SLACK * _EVERY_S:
        return
    came = "no engine figure" if every_s is None else f"engine figures every {number(every_s)} s"
    yield Doubt(
        code="sparse_metrics",
        what=f"{came} came in a window of {number(view.window_s)} s",
        advice="read its queue and KV peaks as lower bounds; see whether its metrics route "
        "answers, and how long it takes",
        severity=Severity.NOTE,
        where=view.level.name,
    )
