"""One level of one run, cut out of its frames, and the latencies that were felt in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.analysis.facts import kv_capacity_tokens, setting, slots
from harness.analysis.frame import Floats, floats, ragged
from harness.config import SloConf
from harness.types import Level, RunInfo

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelView:
    """One level of one run: `rows` all its requests in due order, `measured` those due in it.

    `engine`, `host`: samples inside the window. `kv_capacity_tokens`, `slots`: tokens and requests
    that the engine holds at once; None if it does not say.
    """

    level: Level
    rows: pd.DataFrame
    measured: pd.DataFrame
    engine: pd.DataFrame
    host: pd.DataFrame
    slo: SloConf | None = None
    price_per_hour: float | None = None
    time_to_ready_s: float | None = None
    kv_capacity_tokens: int | None = None
    slots: int | None = None
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)

    def kept(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once for a view: frames are slow to ask again."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def column(self, name: str) -> Floats:
        """A column of the measured requests as floats, missing as NaN; bools as 0 and 1."""
        values: Floats = self.kept(name, lambda: floats(self.measured[name]))
        return values

    def every(self, name: str) -> Floats:
        """A column of all requests of the level as floats, missing as NaN."""
        values: Floats = self.kept(f"every {name}", lambda: floats(self.rows[name]))
        return values

    def flag(self, name: str) -> Flags:
        """A column of bools of the measured requests."""
        values: Flags = self.kept(name, lambda: self.measured[name].to_numpy(dtype=bool))
        return values

    @property
    def good(self) -> Flags:
        """Which of `rows` meet the SLO; call only where `has_slo`."""
        assert self.slo is not None
        slo = self.slo
        values: Flags = self.kept("good", lambda: good_rows(self.rows, slo))
        return values

    @property
    def has_slo(self) -> bool:
        """Whether there is an SLO that asks for anything."""
        return has_limits(self.slo)

    @property
    def window_s(self) -> float:
        """Length of the window; 0 or less: it has none."""
        return self.level.window_end_s - self.level.window_start_s

    @property
    def is_empty(self) -> bool:
        """No measured request, or all of them failed: nothing was measured (case C47)."""
        return bool(self.flag("is_failed").all())


def level_view(
    frame: pd.DataFrame,
    level: Level,
    *,
    engine: pd.DataFrame,
    host: pd.DataFrame,
    slo: SloConf | None = None,
    price_per_hour: float | None = None,
    info: RunInfo | None = None,
) -> LevelView:
    """Cut one level out of a run's frames; `info`: what the run says of its engine."""
    rows = _where(frame, (frame["level"] == level.index).to_numpy(dtype=bool))
    return LevelView(
        level=level,
        rows=rows,
        measured=_where(rows, rows["is_measured"].to_numpy(dtype=bool)),
        engine=_inside(engine, level),
        host=_inside(host, level),
        slo=slo,
        price_per_hour=price_per_hour,
        time_to_ready_s=info.time_to_ready_s if info else None,
        kv_capacity_tokens=kv_capacity_tokens(info) if info else None,
        slots=slots(info) if info else None,
    )


def _where(frame: pd.DataFrame, keep: Flags) -> pd.DataFrame:
    return frame if keep.all() else frame[keep].reset_index(drop=True)


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


def good_rows(rows: pd.DataFrame, slo: SloConf) -> Flags:
    """Whether each request is ok and meets every limit; an answer of one token has no TPOT."""
    good = rows["is_ok"].to_numpy(dtype=bool) & (rows["chunks"].to_numpy() > 0)
    if slo.ttft_s is not None:
        good = good & (floats(rows["ttft_s"]) <= slo.ttft_s)
    if slo.e2e_s is not None:
        good = good & (floats(rows["e2e_s"]) <= slo.e2e_s)
    if slo.tpot_s is not None:
        good = good & ~(floats(rows["tpot_s"]) > slo.tpot_s)
    return np.asarray(good)


def latency_sample(
    view: LevelView, column: str, keep: Flags | None = None
) -> tuple[Floats, Floats]:
    """(values, floors) of one latency over the measured requests, in due order.

    A request that failed, timed out or was cut off counts +inf: whatever becomes of a request,
    it can never make a percentile better. Its floor is what is known at least: the age of one
    that was cut off (for TPOT the time since its first chunk over all tokens asked for), +inf of
    one that failed. What had come before the cut is known: its TTFT, and how late it was sent.
    Of gaps, each that was asked for and never came counts +inf. `lag_s` is the client's doing
    and holds for failed requests too. Empty if nothing but failures was measured. `keep`: only
    these of the measured requests, shape (n,).
    """
    if view.is_empty:
        return np.empty(0), np.empty(0)
    chosen = np.ones(len(view.measured), dtype=bool) if keep is None else keep
    if column == "gaps_s":
        gaps = _all_gaps(view, chosen)
        return gaps, gaps
    values, age = view.column(column), view.column("censored_s")
    floor = age
    if column == "tpot_s":
        asked = np.maximum(view.column("planned_output_tokens") - 1, 1)
        floor = np.nan_to_num((age - view.column("ttft_s")) / asked, nan=0.0)
    is_cut = view.flag("is_censored")
    if column in ("ttft_s", "lag_s"):
        is_cut = is_cut & np.isnan(values)
    is_failed = view.flag("is_failed") & (column != "lag_s")
    values = np.where(is_cut | is_failed, np.inf, values)
    floors = np.where(is_cut, floor, values)
    known = chosen & ~np.isnan(values)
    return values[known], floors[known]


def _all_gaps(view: LevelView, chosen: Flags) -> Floats:
    """Every gap that was seen, and +inf for each that was asked for and never came."""
    rows, gaps = ragged(view.measured["gaps_s"])
    seen = np.bincount(rows, minlength=len(view.measured))
    is_lost = view.flag("is_failed") | view.flag("is_censored")
    asked = np.maximum(view.column("planned_output_tokens") - 1, 0)
    lost = np.where(is_lost & chosen, np.maximum(asked - seen, 1), 0).astype(np.int64)
    places = np.repeat(np.cumsum(np.where(chosen, seen, 0)), lost)
    return np.asarray(np.insert(gaps[chosen[rows]], places, np.inf))
