"""Rates: what arrived or was completed in a level's window, by arrival time."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from harness.analysis.frame import Floats, chunk_token_counts, ragged
from harness.analysis.views import LevelView, good_rows, has_limits

_SERIES_PIECES = (20, 200)  # a window is cut into one piece a second, between these numbers


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


def rate_value(view: LevelView, name: str) -> float | None:
    """One rate of one run, a ratio of sums: everything in the window over its length."""
    series = rate_series(view, name)
    return None if series is None else float(series.sum()) / view.window_s
