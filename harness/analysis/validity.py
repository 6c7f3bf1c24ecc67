"""Doubts about a run, computed from its tables: what to distrust, and what to do about it.

`run_doubts` is called right after a load, on the left side of the store too: pandas is imported
inside it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.analysis.achieved import achieved
from harness.analysis.doubts_client import client_doubts
from harness.analysis.doubts_ended import ended_doubts
from harness.analysis.doubts_load import load_doubts
from harness.analysis.doubts_machine import machine_doubts
from harness.analysis.doubts_setup import setup_doubts
from harness.analysis.doubts_trace import trace_doubts
from harness.analysis.littles_law import littles_law_doubts
from harness.analysis.steady import steady_doubts
from harness.config import Shape
from harness.store import StoredRun
from harness.types import Doubt, EngineSample, HostSample, RunInfo

if TYPE_CHECKING:
    import pandas as pd

    from harness.analysis.views import LevelView


def run_doubts(run: StoredRun) -> tuple[Doubt, ...]:
    """Every doubt that the run's own figures raise; `where` names the level, or is empty.

    `run`: its tables are on disk, its `info` has `config`, `facts` and `levels`. A doubt of
    severity INVALID means that the run is no evidence (exit code 3).
    """
    from harness.analysis.frame import request_frame, sample_frame  # noqa: PLC0415 pandas
    from harness.analysis.views import level_view, slo_of  # noqa: PLC0415 pandas

    info, frame = run.info, request_frame(run)
    engine = sample_frame(run.engine_samples(), EngineSample)
    host = sample_frame(run.host_samples(), HostSample)
    views = [
        level_view(frame, level, engine=engine, host=host, slo=slo_of(info), info=info)
        for level in info.levels
    ]
    return view_doubts(info, frame, views)


def view_doubts(
    info: RunInfo, frame: "pd.DataFrame", views: "Sequence[LevelView]"
) -> tuple[Doubt, ...]:
    """The same from frames that are already there."""
    from harness.analysis.doubts_engine import engine_doubts  # noqa: PLC0415 pandas
    from harness.analysis.doubts_gpu import gpu_doubts  # noqa: PLC0415 pandas

    found = list(setup_doubts(info, frame))
    for view in views:
        came = achieved(info, view)
        found += client_doubts(info, view, came)
        found += machine_doubts(info, view, came)
        found += gpu_doubts(view)
        found += engine_doubts(info, view)
        if view.level.shape == Shape.SEARCH:
            continue  # a probe is meant to overload, and ends as soon as it is decided
        found += load_doubts(info, view, came)
        found += ended_doubts(info, view, came)
        found += trace_doubts(view)
        found += littles_law_doubts(view)
        found += steady_doubts(view)
    return tuple(found)
