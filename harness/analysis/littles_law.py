"""Little's law inside the window: requests under way = arrival rate x mean time in the system.

It holds for any system and any load, so that a gap is a fault of ours: of the clock, of the
window, or of requests that are counted twice or in the wrong phase.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.analysis.in_flight import mean_in_flight, spans
from harness.types import Doubt, Severity
from harness.units import number, percent

if TYPE_CHECKING:
    from harness.analysis.views import LevelView

_TOLERANCE = 0.05  # method.md 2: 5 % of the mean in flight
_LEAST_REQUESTS = 50


class Balance(NamedTuple):
    """`in_flight`: L, a time average. `expected`: lambda W, from the measured requests."""

    in_flight: float
    expected: float

    @property
    def gap_ratio(self) -> float:
        """How far the two are apart, as a share of the first; inf if nothing was under way."""
        if self.in_flight <= 0:
            return float("inf") if self.expected else 0.0
        return abs(self.in_flight - self.expected) / self.in_flight


def balance(view: "LevelView") -> Balance | None:
    """Both sides of the law in one level; None below 50 requests, which show nothing.

    L is integrated over the window from the stamps of whatever arrived in it by its due time.
    lambda W is put together from the requests that are counted as measured, each with its time
    in the system inside the window: what lies beyond the window's end is left out on both sides.
    """
    level, found = view.level, spans(view)
    is_measured = view.rows["is_measured"].to_numpy(dtype=bool) & ~np.isnan(found.end_s)
    n = int(is_measured.sum())
    if n < _LEAST_REQUESTS or view.window_s <= 0:
        return None
    came = np.where(found.due_s >= level.window_start_s, found.due_s, np.nan)
    edges = np.asarray([level.window_start_s, level.window_end_s])
    in_flight = float(mean_in_flight(came, found.end_s, edges)[0])
    due = found.due_s[is_measured]
    stay = np.minimum(found.end_s[is_measured], level.window_end_s) - due
    return Balance(in_flight=in_flight, expected=n / view.window_s * float(stay.mean()))


def littles_law_doubts(view: "LevelView") -> Iterator[Doubt]:
    """A doubt where the two sides are more than 5 % apart."""
    found = balance(view)
    if found is None or found.gap_ratio <= _TOLERANCE:
        return
    yield Doubt(
        code="littles_law",
        what=f"{number(found.in_flight)} requests were under way on average where arrivals times "
        f"their time say {number(found.expected)} (Little's law, off by "
        f"{percent(found.gap_ratio)})",
        advice="stamps or the window are wrong: decode the run again, and report it if it stays",
        severity=Severity.WARN,
        where=view.level.name,
    )
