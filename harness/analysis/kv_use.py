"""The tokens that answers under way must keep in the KV cache, from our own stamps.

A second estimate of KV use beside the engine's own, for any engine whose capacity is known. It
counts the prompt and what has been generated so far of every request that runs. What it cannot
see: blocks that are only partly filled, beginnings that requests share (counted for each of
them), and what was given up and computed again.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.analysis.frame import chunk_token_counts, ragged
from harness.analysis.in_flight import spans
from harness.analysis.stats import Floats

if TYPE_CHECKING:
    from harness.analysis.views import LevelView

_POINTS_PER_S = 2.0  # where the peak is looked for: as often as engines are asked
_POINTS = (20, 2000)


class Changes(NamedTuple):
    """Tokens that come (+) and go (-) with their moments, shape (n,) each, in no order."""

    at_s: Floats
    tokens: Floats


def mean_kv_tokens(view: "LevelView") -> float | None:
    """Mean tokens in flight over the window; None without a window or a request."""
    found = _changes(view)
    if found is None:
        return None
    start_s, end_s = view.level.window_start_s, view.level.window_end_s
    held_s = np.clip(end_s - found.at_s, 0.0, end_s - start_s)
    return float((found.tokens * held_s).sum()) / (end_s - start_s)


def peak_kv_tokens(view: "LevelView") -> float | None:
    """The most tokens in flight at moments spread over the window, two a second."""
    found = _changes(view)
    if found is None:
        return None
    start_s, end_s = view.level.window_start_s, view.level.window_end_s
    points = int(np.clip((end_s - start_s) * _POINTS_PER_S, *_POINTS))
    edges = np.linspace(start_s, end_s, points + 1)
    before = float(found.tokens[found.at_s < start_s].sum())
    inside = np.histogram(found.at_s, bins=edges, weights=found.tokens)[0]
    return float((before + np.cumsum(inside)).max(initial=before))


def kv_usage(view: "LevelView", *, is_peak: bool = False) -> float | None:
    """The same over the capacity that is known, 0 and up; None where it is not known."""
    tokens = peak_kv_tokens(view) if is_peak else mean_kv_tokens(view)
    capacity = view.kv_capacity_tokens
    return None if tokens is None or not capacity else tokens / capacity


def _changes(view: "LevelView") -> Changes | None:
    if view.is_empty or view.window_s <= 0:
        return None
    found: Changes = view.kept("kv changes", lambda: _all_changes(view))
    return found


def _all_changes(view: "LevelView") -> Changes:
    found = spans(view)
    is_known = ~np.isnan(found.sent_s) & ~np.isnan(found.end_s)
    end = np.maximum(found.end_s, found.sent_s)
    prompt = view.every("prompt_tokens")
    prompt = np.where(np.isnan(prompt), view.every("planned_input_tokens"), prompt)
    rows, chunk_s = ragged(view.rows["chunk_s"])
    chunk_tokens = chunk_token_counts(view.rows)
    keep = is_known[rows] & (chunk_s <= end[rows])
    rows, chunk_s, chunk_tokens = rows[keep], chunk_s[keep], chunk_tokens[keep]
    generated = np.bincount(rows, weights=chunk_tokens, minlength=is_known.size)
    start = np.full(is_known.size, np.nan)
    start[is_known] = _starts(
        found.sent_s[is_known], end[is_known], view.every("first_s")[is_known], view.slots
    )
    return Changes(
        at_s=np.concatenate([start[is_known], chunk_s, end[is_known]]),
        tokens=np.concatenate([prompt[is_known], chunk_tokens, -(prompt + generated)[is_known]]),
    )


def _starts(sent_s: Floats, end_s: Floats, first_s: Floats, slots: int | None) -> Floats:
    """When each request took its place: when it was sent, or when a slot became free for it.

    First come, first served: of `slots` places, the k-th to be sent (from 0) gets one when
    k - slots + 1 have ended. Never after its first token. Without `slots`: when it was sent.
    """
    start = sent_s
    if slots is not None and 0 < slots < sent_s.size:
        order = np.argsort(sent_s, kind="stable")
        start = sent_s.copy()
        start[order[slots:]] = np.maximum(
            sent_s[order[slots:]], np.sort(end_s)[: sent_s.size - slots]
        )
    return np.asarray(np.fmin(start, first_s))
