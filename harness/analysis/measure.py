"""Shares, means and peaks of one run at one level.

A level where every request failed measures nothing: all None but the share of errors.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from harness.analysis.cost import cost_per_million
from harness.analysis.frame import Floats, floats, fluidity
from harness.analysis.gpu_use import (
    BY_DRIVER,
    BY_HARDWARE,
    POWER_CAP,
    energy_per_token_j,
    imbalance_ratio,
    throttled_ratio,
)
from harness.analysis.kv_use import kv_usage, mean_kv_tokens
from harness.analysis.rates import rate_value
from harness.analysis.views import LevelView, good_rows


def share_indicator(view: LevelView, name: str) -> Floats | None:
    """0 or 1 for each measured request that counts for a share, in due order."""
    if name == "error_ratio":
        return view.column("is_failed")[~view.flag("is_censored")]
    if view.is_empty or not view.has_slo:
        return None
    return good_rows(view.measured, view.slo).astype(np.float64) if view.slo else None


def plain_value(view: LevelView, name: str) -> float | None:
    """A mean, a maximum or a cost of one run."""
    if name == "time_to_ready_s":
        return view.time_to_ready_s
    if view.is_empty:
        return None
    value = _PLAIN[name](view)
    return None if value is None or np.isnan(value) else float(value)


def _of_ok(column: str) -> Callable[[LevelView], float | None]:
    def value(view: LevelView) -> float | None:
        known = _known(view.column(column)[view.flag("is_ok")])
        return float(known.mean()) if known.size else None

    return value


def _of_plan(column: str, planned: str) -> Callable[[LevelView], float | None]:
    def value(view: LevelView) -> float | None:
        came, plan = view.column(column), view.column(planned)
        known = view.flag("is_ok") & ~np.isnan(came)
        total = float(plan[known].sum())
        return float(came[known].sum()) / total if total else None

    return value


def _of_samples(table: str, column: str, how: str) -> Callable[[LevelView], float | None]:
    def value(view: LevelView) -> float | None:
        known = _known(floats(getattr(view, table)[column]))
        return float(getattr(known, how)()) if known.size else None

    return value


def _known(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _tokens_per_chunk(view: LevelView) -> float | None:
    is_ok = view.flag("is_ok")
    tokens, chunks = view.column("output_tokens")[is_ok], view.column("chunks")[is_ok]
    known = ~np.isnan(tokens)
    total = float(chunks[known].sum())
    return float(tokens[known].sum()) / total if total else None


def _fluidity(view: LevelView) -> float | None:
    slo = view.slo
    if slo is None or slo.ttft_s is None or slo.tpot_s is None:
        return None
    shares = _known(fluidity(view.measured[view.flag("is_ok")], slo.ttft_s, slo.tpot_s))
    return float(shares.mean()) if shares.size else None


def _preemptions(view: LevelView) -> float | None:
    counter = _known(floats(view.engine["preemptions_total"]))
    return float(counter[-1] - counter[0]) if counter.size > 1 else None


class KvUse(NamedTuple):
    """Mean share of the KV cache in use: by the engine's own figure, and by our stamps."""

    engine: float
    ours: float


def kv_difference(view: LevelView) -> KvUse | None:
    """Both figures of KV use, where both are known."""
    engine, ours = plain_value(view, "kv_usage_ratio"), plain_value(view, "kv_usage_derived_ratio")
    return None if engine is None or ours is None else KvUse(engine=engine, ours=ours)


def _kv_difference(view: LevelView) -> float | None:
    found = kv_difference(view)
    return None if found is None else found.ours - found.engine


def _cost(view: LevelView) -> float | None:
    return cost_per_million(view.price_per_hour, rate_value(view, "output_tokens_per_s"))


_PLAIN: dict[str, Callable[[LevelView], float | None]] = {
    "output_tokens_mean": _of_ok("output_tokens"),
    "input_tokens_mean": _of_ok("prompt_tokens"),
    "input_plan_ratio": _of_plan("prompt_tokens", "planned_input_tokens"),
    "output_plan_ratio": _of_plan("output_tokens", "planned_output_tokens"),
    "tokens_per_chunk": _tokens_per_chunk,
    "fluidity_ratio": _fluidity,
    "kv_usage_ratio": _of_samples("engine", "kv_usage_ratio", "mean"),
    "kv_usage_max_ratio": _of_samples("engine", "kv_usage_ratio", "max"),
    "kv_usage_derived_ratio": kv_usage,
    "kv_usage_derived_max_ratio": partial(kv_usage, is_peak=True),
    "kv_usage_difference_ratio": _kv_difference,
    "kv_tokens": mean_kv_tokens,
    "waiting": _of_samples("engine", "waiting", "mean"),
    "waiting_max": _of_samples("engine", "waiting", "max"),
    "preemptions": _preemptions,
    "engine_rss_bytes": _of_samples("host", "engine_rss_bytes", "max"),
    "gpu_memory_bytes": _of_samples("host", "gpu_memory_bytes", "max"),
    "gpu_util_ratio": _of_samples("host", "gpu_util_ratio", "mean"),
    "gpu_imbalance_ratio": imbalance_ratio,
    "gpu_power_w": _of_samples("host", "gpu_power_w", "mean"),
    "gpu_sm_clock_mhz": _of_samples("host", "gpu_sm_clock_mhz", "mean"),
    "gpu_temperature_c": _of_samples("host", "gpu_temperature_c", "max"),
    "gpu_throttled_ratio": partial(throttled_ratio, reasons=BY_HARDWARE | BY_DRIVER | {POWER_CAP}),
    "energy_per_token_j": energy_per_token_j,
    "cost_per_mtok": _cost,
}
