"""How many requests were under way in a level's window, from the requests' own stamps."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.analysis.stats import Floats

if TYPE_CHECKING:
    from harness.analysis.views import LevelView

_PIECES = (20, 200)  # one piece a second, between these numbers, as for rates


class Spans(NamedTuple):
    """When each request of a level was due, sent and over, shape (n,) each; NaN is unknown.

    Over is the end of the stream, else the last chunk, else the moment when it was cut off.
    """

    due_s: Floats
    sent_s: Floats
    end_s: Floats


def spans(view: "LevelView") -> Spans:
    """The spans of all requests of the level, those that failed and those of no window too."""
    due, end = view.every("due_s"), view.every("stream_end_s")
    for other in (view.every("last_s"), due + view.every("censored_s")):
        end = np.where(np.isnan(end), other, end)
    return Spans(due_s=due, sent_s=view.every("sent_s"), end_s=end)


def mean_in_flight(start_s: Floats, end_s: Floats, edges_s: Floats) -> Floats:
    """Mean number under way between neighbouring `edges_s`, shape (len(edges_s) - 1,).

    A request is under way from `start_s` to `end_s`; one without either is left out.
    """
    known = ~np.isnan(start_s) & ~np.isnan(end_s)
    begun, over = start_s[known], np.maximum(end_s[known], start_s[known])
    total = _time_since(begun, edges_s) - _time_since(over, edges_s)
    return np.asarray(np.diff(total) / np.diff(edges_s))


def _time_since(moments_s: Floats, at_s: Floats) -> Floats:
    """Sum of the times from each moment before `at_s` to it, shape of `at_s`."""
    ordered = np.sort(moments_s)
    before = np.searchsorted(ordered, at_s)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    return np.asarray(before * at_s - sums[before])


def in_flight_series(view: "LevelView") -> Floats | None:
    """Mean requests under way in equal pieces of the window, about a second each, from due."""
    if view.is_empty or view.window_s <= 0:
        return None
    pieces = int(np.clip(view.window_s, *_PIECES))
    edges = np.linspace(view.level.window_start_s, view.level.window_end_s, pieces + 1)
    found = spans(view)
    return mean_in_flight(found.due_s, found.end_s, edges)
