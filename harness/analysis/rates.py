"""Rates: what arrived or was completed in a level's window, by arrival time."""

from collections.abc import Callable

import numpy as np

from harness.analysis.frame import Floats, chunk_token_counts, floats, ragged
from harness.analysis.views import Flags, LevelView

_SERIES_PIECES = (20, 200)  # a window is cut into one piece a second, between these numbers


def rate_series(view: LevelView, name: str) -> Floats | None:
    """Amounts of a rate in equal pieces of the window, shape (pieces,); None: not measured."""
    series: Floats | None = view.kept(f"series of {name}", lambda: _series(view, name))
    return series


def _series(view: LevelView, name: str) -> Floats | None:
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


def _tokens(view: LevelView, keep: Flags) -> tuple[Floats, Floats]:
    rows, stamps = view.kept("chunk rows", lambda: ragged(view.rows["chunk_s"]))
    tokens = view.kept("chunk tokens", lambda: chunk_token_counts(view.rows))
    return stamps, np.where(keep[rows], tokens, 0.0)


def _ends(view: LevelView) -> Floats:
    """When each ok answer ended, NaN for others."""
    ends, last = floats(view.rows["stream_end_s"]), floats(view.rows["last_s"])
    ends = np.where(np.isnan(ends), last, ends)
    return np.asarray(np.where(view.rows["is_ok"].to_numpy(dtype=bool), ends, np.nan))


def _all_tokens(view: LevelView) -> tuple[Floats, Floats]:
    return _tokens(view, ~view.rows["is_failed"].to_numpy(dtype=bool))


def _finished_tokens(view: LevelView) -> tuple[Floats, Floats]:
    return _tokens(view, _ends(view) <= view.level.window_end_s)


def _good_tokens(view: LevelView) -> tuple[Floats, Floats] | None:
    return _tokens(view, view.good) if view.has_slo else None


def _completions(view: LevelView) -> tuple[Floats, Floats]:
    ends = _ends(view)
    return ends, np.ones(ends.size)


def _good_completions(view: LevelView) -> tuple[Floats, Floats] | None:
    return (_ends(view), view.good.astype(np.float64)) if view.has_slo else None


def _offered(view: LevelView) -> tuple[Floats, Floats]:
    due = view.column("due_s")
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
