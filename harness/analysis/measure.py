"""What one run measured at one level: every metric of the table from frames.

Percentiles are over requests due in the window; rates count what arrived in the window,
whatever its request's phase. A level where every request failed measures nothing: all None.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.analysis.cost import cost_per_million
from harness.analysis.frame import Floats, chunk_token_counts, fluidity, ragged
from harness.config import SloConf
from harness.types import Level

_SERIES_PIECES = (20, 200)  # a window is cut into one piece a second, between these numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelView:
    """One level of one run: `rows` all its requests in due order, `measured` those due in it.

    `engine`, `host`: samples inside the window. `good`: shape (len(rows),), whether each row
    meets the SLO; None without limits.
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


def rate_series(view: LevelView, name: str) -> Floats | None:
    """Amounts of a rate in equal pieces of the window, shape (pieces,); None: not measured."""
    if view.is_empty or view.window_s <= 0:
        return None
    stamps_and_amounts = _RATES[name](view)
    if stamps_and_amounts is None:
        return None
    stamps, amounts = stamps_and_amounts
    pieces = int(np.clip(view.window_s, *_SERIES_PIECES))
    bounds = (view.level.window_start_s, view.level.window_end_s)
    is_inside = (stamps >= bounds[0]) & (stamps <= bounds[1])
    weights = amounts[is_inside]
    return np.histogram(stamps[is_inside], bins=pieces, range=bounds, weights=weights)[0]


def _tokens(view: LevelView, keep: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    rows, stamps = ragged(view.rows["chunk_s"])
    return stamps, np.where(keep[rows], chunk_token_counts(view.rows), 0.0)


def _ends(view: LevelView) -> Floats:
    ends = view.rows["stream_end_s"].fillna(view.rows["last_s"])
    return np.asarray(ends.where(view.rows["is_ok"]).to_numpy(dtype=np.float64))


def _all_tokens(view: LevelView) -> tuple[Floats, Floats]:
    return _tokens(view, ~view.rows["is_failed"].to_numpy())


def _finished_tokens(view: LevelView) -> tuple[Floats, Floats]:
    return _tokens(view, _ends(view) <= view.level.window_end_s)


def _good_tokens(view: LevelView) -> tuple[Floats, Floats] | None:
    if view.slo is None or not has_limits(view.slo):
        return None
    return _tokens(view, good_rows(view.rows, view.slo))


def _completions(view: LevelView) -> tuple[Floats, Floats]:
    ends = _ends(view)
    return ends, np.ones(ends.size)


def _good_completions(view: LevelView) -> tuple[Floats, Floats] | None:
    if view.slo is None or not has_limits(view.slo):
        return None
    return _ends(view), good_rows(view.rows, view.slo).astype(np.float64)


def _offered(view: LevelView) -> tuple[Floats, Floats]:
    due = view.measured["due_s"].to_numpy(dtype=np.float64)
    return due, np.ones(due.size)


_RATES: dict[str, Callable[[LevelView], tuple[Floats, Floats] | None]] = {
    "output_tokens_per_s": _all_tokens,
    "output_tokens_per_s_finished": _finished_tokens,
    "good_tokens_per_s": _good_tokens,
    "requests_per_s": _completions,
    "offered_rps": _offered,
    "goodput_rps": _good_completions,
}


def share_indicator(view: LevelView, name: str) -> Floats | None:
    """0 or 1 for each measured request that counts for a share, in due order."""
    rows = view.measured
    if name == "error_ratio":
        ended = rows[~rows["is_censored"]]
        return ended["is_failed"].to_numpy(dtype=np.float64) if len(ended) else None
    if view.is_empty or view.slo is None or not has_limits(view.slo):
        return None
    return good_rows(rows, view.slo).astype(np.float64)


def plain_value(view: LevelView, name: str) -> float | None:
    """A mean, a maximum or a cost of one run."""
    if name == "time_to_ready_s":
        return view.time_to_ready_s
    if view.is_empty:
        return None
    value = _PLAIN[name](view)
    return None if value is None or np.isnan(value) else float(value)


def _of_ok(column: str) -> Callable[[LevelView], float | None]:
    return lambda view: float(view.measured.loc[view.measured["is_ok"], column].mean())


def _of_samples(table: str, column: str, how: str) -> Callable[[LevelView], float | None]:
    def value(view: LevelView) -> float | None:
        series: pd.Series[Any] = getattr(view, table)[column]
        return float(getattr(series, how)())

    return value


def _tokens_per_chunk(view: LevelView) -> float | None:
    ok = view.measured[view.measured["is_ok"]]
    chunks = float(ok["chunks"].sum())
    return float(ok["output_tokens"].sum()) / chunks if chunks else None


def _fluidity(view: LevelView) -> float | None:
    slo = view.slo
    if slo is None or slo.ttft_s is None or slo.tpot_s is None:
        return None
    ok = view.measured[view.measured["is_ok"]]
    shares = fluidity(ok, slo.ttft_s, slo.tpot_s)
    shares = shares[~np.isnan(shares)]
    return float(shares.mean()) if shares.size else None


def _preemptions(view: LevelView) -> float | None:
    counter = view.engine["preemptions_total"].dropna()
    return float(counter.iloc[-1] - counter.iloc[0]) if len(counter) > 1 else None


def _cost(view: LevelView) -> float | None:
    series = rate_series(view, "output_tokens_per_s")
    rate = None if series is None else float(series.sum()) / view.window_s
    return cost_per_million(view.price_per_hour, rate)


_PLAIN: dict[str, Callable[[LevelView], float | None]] = {
    "output_tokens_mean": _of_ok("output_tokens"),
    "input_tokens_mean": _of_ok("prompt_tokens"),
    "tokens_per_chunk": _tokens_per_chunk,
    "fluidity_ratio": _fluidity,
    "kv_usage_ratio": _of_samples("engine", "kv_usage_ratio", "mean"),
    "kv_usage_max_ratio": _of_samples("engine", "kv_usage_ratio", "max"),
    "waiting": _of_samples("engine", "waiting", "mean"),
    "waiting_max": _of_samples("engine", "waiting", "max"),
    "preemptions": _preemptions,
    "engine_rss_bytes": _of_samples("host", "engine_rss_bytes", "max"),
    "gpu_memory_bytes": _of_samples("host", "gpu_memory_bytes", "max"),
    "cost_per_mtok": _cost,
}
