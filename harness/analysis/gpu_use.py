"""How the GPUs fared in a level's window: shares of each, energy, and clocks held back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.analysis.frame import floats
from harness.analysis.rates import rate_value
from harness.analysis.stats import Floats

if TYPE_CHECKING:
    import pandas as pd

    from harness.analysis.views import LevelView

BY_HARDWARE = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake"})
BY_DRIVER = frozenset({"sw_thermal_slowdown", "board_limit", "reliability"})
POWER_CAP = "sw_power_cap"
_IN_USE = 0.1  # of the fullest GPU's memory; one that holds less has no part of the model


def imbalance_ratio(view: "LevelView") -> float | None:
    """(max - min) / mean utilisation of the GPUs in use, each over the window; None for one.

    In use: holds at least a tenth of the memory of the fullest. 0: all alike; for two GPUs, 2:
    one of them did everything.
    """
    utils = _each_mean(view.host["gpu_each_util_ratio"])
    held = _each_mean(view.host["gpu_each_memory_bytes"])
    if held.size == utils.size and not np.isnan(held).all():
        utils = utils[~(held < _IN_USE * np.nanmax(held))]
    utils = utils[~np.isnan(utils)]
    if utils.size < 2 or utils.mean() == 0:  # noqa: PLR2004 nothing to compare
        return None
    return float((utils.max() - utils.min()) / utils.mean())


def _each_mean(column: "pd.Series[Any]") -> Floats:
    """The mean of each GPU over all samples, shape (gpus,); NaN where it never told."""
    rows = [np.asarray(row, dtype=np.float64) for row in column if _is_list(row)]
    if not rows or len({row.size for row in rows}) != 1:
        return np.empty(0)
    values = np.stack(rows)
    told = ~np.isnan(values)
    count = told.sum(axis=0)
    total = np.where(told, values, 0.0).sum(axis=0)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _is_list(row: Any) -> bool:
    return isinstance(row, Sequence | np.ndarray) and not isinstance(row, str)


def energy_per_token_j(view: "LevelView") -> float | None:
    """Rise of the energy counters over output tokens, between the window's first and last sample.

    None without the counter, and where the tokens are not known or none came.
    """
    t_s, energy_j = floats(view.host["t_s"]), floats(view.host["gpu_energy_j"])
    known = ~np.isnan(energy_j)
    rate = rate_value(view, "output_tokens_per_s")
    if known.sum() < 2 or not rate:  # noqa: PLR2004 a rise needs two
        return None
    t_s, energy_j = t_s[known], energy_j[known]
    tokens = rate * (t_s[-1] - t_s[0])
    spent_j = energy_j[-1] - energy_j[0]
    return float(spent_j / tokens) if tokens > 0 and spent_j >= 0 else None


def throttled_ratio(view: "LevelView", reasons: frozenset[str]) -> float | None:
    """Share of the window's samples in which one of these held clocks back; None: not told."""
    told = [word for word in view.host["gpu_throttle"] if isinstance(word, str)]
    if not told:
        return None
    return sum(1 for words in told if reasons & set(words.split(","))) / len(told)


def rise(view: "LevelView", column: str) -> float | None:
    """How much a counter rose over the window's samples; None for fewer than two."""
    counter = floats(view.host[column])
    counter = counter[~np.isnan(counter)]
    return float(counter[-1] - counter[0]) if counter.size > 1 else None
