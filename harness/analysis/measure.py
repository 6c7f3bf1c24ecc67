"""Shares, means and peaks of one run at one level.

A level where every request failed measures nothing: all None but the share of errors.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from harness.analysis.cost import cost_per_million
from harness.analysis.frame import Floats, fluidity
from harness.analysis.rates import rate_value
from harness.analysis.views import LevelView, good_rows, has_limits


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
    return cost_per_million(view.price_per_hour, rate_value(view, "output_tokens_per_s"))


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
