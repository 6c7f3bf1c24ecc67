"""One level of one run, cut out of its frames, and the latencies that were felt in it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.analysis.facts import setting
from harness.analysis.frame import Floats, ragged
from harness.config import SloConf
from harness.types import Level, RunInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelView:
    """One level of one run: `rows` all its requests in due order, `measured` those due in it.

    `engine`, `host`: samples inside the window.
    """

    level: Level
    rows: pd.DataFrame
    measured: pd.DataFrame
    engine: pd.DataFrame
    host: pd.DataFrame
    slo: SloConf | None = None
    price_per_hour: float | None = None
    time_to_ready_s: float | None = None

    @property
    def window_s(self) -> float:
        """Length of the window; 0 or less: it has none."""
        return self.level.window_end_s - self.level.window_start_s

    @property
    def is_empty(self) -> bool:
        """No measured request, or all of them failed: nothing was measured (case C47)."""
        return not bool((~self.measured["is_failed"]).any())


def level_view(
    frame: pd.DataFrame,
    level: Level,
    *,
    engine: pd.DataFrame,
    host: pd.DataFrame,
    slo: SloConf | None = None,
    price_per_hour: float | None = None,
    time_to_ready_s: float | None = None,
) -> LevelView:
    """Cut one level out of a run's frames."""
    rows = frame[frame["level"] == level.index].reset_index(drop=True)
    return LevelView(
        level=level,
        rows=rows,
        measured=rows[rows["is_measured"]].reset_index(drop=True),
        engine=_inside(engine, level),
        host=_inside(host, level),
        slo=slo,
        price_per_hour=price_per_hour,
        time_to_ready_s=time_to_ready_s,
    )


def _inside(samples: pd.DataFrame, level: Level) -> pd.DataFrame:
    return samples[samples["t_s"].between(level.window_start_s, level.window_end_s)]


def has_limits(slo: SloConf | None) -> bool:
    """Whether there is an SLO that asks for anything."""
    return slo is not None and any(
        limit is not None for limit in (slo.ttft_s, slo.tpot_s, slo.e2e_s)
    )


def slo_of(info: RunInfo) -> SloConf | None:
    """The SLO that the run was configured with; None if it sets no limit."""
    given = setting(info, "slo")
    if not isinstance(given, Mapping):
        return None
    known = {one.name for one in fields(SloConf)}
    slo = SloConf(**{key: value for key, value in given.items() if key in known})
    return slo if has_limits(slo) else None


def good_rows(rows: pd.DataFrame, slo: SloConf) -> npt.NDArray[np.bool_]:
    """Whether each request is ok and meets every limit; an answer of one token has no TPOT."""
    good = rows["is_ok"].to_numpy(dtype=bool)
    if slo.ttft_s is not None:
        good = good & (rows["ttft_s"] <= slo.ttft_s).to_numpy()
    if slo.e2e_s is not None:
        good = good & (rows["e2e_s"] <= slo.e2e_s).to_numpy()
    if slo.tpot_s is not None:
        good = good & ~(rows["tpot_s"] > slo.tpot_s).to_numpy()
    return np.asarray(good & (rows["chunks"] > 0).to_numpy())


def latency_sample(view: LevelView, column: str) -> tuple[Floats, Floats]:
    """(values, floors) of one latency over the measured requests that did not fail.

    A request that was cut off counts +inf, its floor being what is known: its age, for TPOT
    the time since its first chunk over all tokens asked for. Gaps are those seen.
    """
    rows = view.measured[~view.measured["is_failed"]]
    if column == "gaps_s":
        gaps = ragged(rows[column])[1]
        return gaps, gaps
    values = rows[column].to_numpy(dtype=np.float64)
    age = rows["censored_s"].to_numpy(dtype=np.float64)
    floor = age
    if column == "tpot_s":
        since_first = age - rows["ttft_s"].to_numpy(dtype=np.float64)
        asked = np.maximum(rows["planned_output_tokens"].to_numpy(dtype=np.float64) - 1, 1)
        floor = np.nan_to_num(since_first / asked, nan=0.0)
    is_cut = rows["is_censored"].to_numpy()
    if column in ("ttft_s", "lag_s"):
        is_cut = is_cut & np.isnan(values)  # what had come before the cut is known
    values = np.where(is_cut, np.inf, values)
    keep = ~np.isnan(values)
    return values[keep], np.where(is_cut, floor, values)[keep]
