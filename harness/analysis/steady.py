"""Whether a level settled inside its window, and how much of the window is start-up.

MSER-5 looks at the requests in flight, the TTFT and the output (method.md 3.1); a comparison of
the first with the last third of the window is the check behind it. The figures of a run are over
the whole window either way: what is found here is told, and no request is left out for it.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.analysis.in_flight import in_flight_series
from harness.analysis.mser import Settled, settled
from harness.types import Doubt, Severity
from harness.units import number, percent, ratio_change, seconds

if TYPE_CHECKING:
    from harness.analysis.stats import Floats
    from harness.analysis.views import LevelView

_DRIFT = 0.10  # a shift between the thirds of a window that is no longer steady
_LEAST_PIECES = 12  # a window is cut into; four make a third
_LEAST_IN_A_PIECE = 5
_THIRDS = "from the first to the last third of the window"
_START_UP = 0.10  # of the window: more start-up than this is worth saying
_TURNOVERS = 2  # the population in flight must turn over once: 2 median E2E
_MOVES = ("ramp", "trace")  # shapes whose load itself moves
_NAMES = {"in_flight": "requests in flight", "ttft": "TTFT", "output": "output tokens/s"}


class SteadyState(NamedTuple):
    """`series`: what MSER-5 says of each, None where too short. `cut_s`: start-up, the longest."""

    series: Mapping[str, Settled | None]
    cut_s: float | None

    @property
    def unsettled(self) -> list[str]:
        """Which series never settle."""
        return [name for name, one in self.series.items() if one and not one.is_steady]


def steady_state(view: "LevelView") -> SteadyState:
    """What MSER-5 says of a level; `cut_s` is None where every series is too short for it."""
    from harness.analysis.rates import rate_series  # noqa: PLC0415 pandas

    due_s, ttft_s = _waits(view)
    by_time = {
        "in_flight": in_flight_series(view),
        "output": rate_series(view, "output_tokens_per_s"),
    }
    found: dict[str, Settled | None] = {"ttft": settled(ttft_s)}
    cuts_s: list[float] = []
    if (wait := found["ttft"]) is not None:
        cuts_s.append(float(due_s[wait.cut]) - view.level.window_start_s if wait.cut else 0.0)
    for name, series in by_time.items():
        found[name] = one = None if series is None else settled(series)
        if series is not None and one is not None:
            cuts_s.append(one.cut * view.window_s / series.size)
    if not cuts_s:
        return SteadyState(series=found, cut_s=None)
    return SteadyState(series=found, cut_s=max(*cuts_s, _turnover_s(view)))


def _waits(view: "LevelView") -> "tuple[Floats, Floats]":
    """Due time and TTFT of the measured requests whose TTFT, or least TTFT, is known."""
    from harness.analysis.views import latency_sample  # noqa: PLC0415 pandas

    if view.is_empty:
        return np.empty(0), np.empty(0)
    known = ~np.isnan(view.column("ttft_s")) | view.flag("is_failed") | view.flag("is_censored")
    due_s, floors = view.column("due_s")[known], latency_sample(view, "ttft_s", known)[1]
    is_finite = np.isfinite(floors)
    return due_s[is_finite], floors[is_finite]


def _turnover_s(view: "LevelView") -> float:
    e2e_s = view.column("e2e_s")[view.flag("is_ok")]
    e2e_s = e2e_s[~np.isnan(e2e_s)]
    return _TURNOVERS * float(np.median(e2e_s)) if e2e_s.size else 0.0


def steady_doubts(view: "LevelView") -> Iterator[Doubt]:
    """`not_steady`, or `start_up` where it settled late; nothing where the load itself moves."""
    if view.is_empty or view.level.shape in _MOVES:
        return
    state = steady_state(view)
    said = list(_moved_thirds(view))
    named = {"ttft": "TTFT", "output": "output changed"}
    said += [
        _unsettled(name, one)
        for name in state.unsettled
        if (one := state.series[name]) and not any(named.get(name, "-") in text for text in said)
    ]
    is_late = state.cut_s is not None and state.cut_s > _START_UP * view.window_s
    start_up = (
        f"the first {seconds(state.cut_s)} of the window ({percent(_share(view, state))}) are "
        "start-up (MSER-5, or two answers long), and the figures hold them"
    )
    if said:
        settles = f"; {start_up}" if is_late and not state.unsettled else ""
        yield Doubt(
            code="not_steady",
            what=" and ".join(said) + settles,
            advice="overload or a cold start: lower the load, warm up longer, or measure longer",
            where=view.level.name,
        )
    elif is_late:
        yield Doubt(
            code="start_up",
            what=start_up,
            advice=f"measure longer: load.duration_s={_long_enough_s(state):.0f} or more",
            severity=Severity.NOTE,
            where=view.level.name,
        )


def _long_enough_s(state: SteadyState) -> float:
    return (state.cut_s or 0.0) / _START_UP


def _share(view: "LevelView", state: SteadyState) -> float:
    return min(1.0, (state.cut_s or 0.0) / view.window_s)


def _unsettled(name: str, one: Settled) -> str:
    ends = [seconds(v) if name == "ttft" else number(v) for v in (one.before, one.after)]
    return f"the {_NAMES[name]} never settled (mean {ends[0]}, then {ends[1]}; MSER-5)"


def _moved_thirds(view: "LevelView") -> Iterator[str]:
    """First against last third of the window: median TTFT, and tokens a second."""
    from harness.analysis.rates import rate_series  # noqa: PLC0415 pandas

    waits = _ttft_pieces(_waits(view)[1])
    if (moved := _moved(waits)) is not None:
        yield f"the median TTFT went from {seconds(moved[0])} to {seconds(moved[1])} {_THIRDS}"
    output = rate_series(view, "output_tokens_per_s")
    if output is not None and (moved := _moved(output)) is not None:
        yield f"output changed by {ratio_change(moved[1] / moved[0])} {_THIRDS}"


def _ttft_pieces(ttft_s: "Floats") -> "Floats":
    """Median TTFT of consecutive pieces of the requests; none if they are too few."""
    if ttft_s.size < _LEAST_PIECES * _LEAST_IN_A_PIECE:
        return np.empty(0)
    return np.asarray([np.median(piece) for piece in np.array_split(ttft_s, _LEAST_PIECES)])


def _moved(series: "Floats") -> tuple[float, float] | None:
    """Means of the first and last third, if they differ by over 10 % and beyond their spread."""
    from harness.analysis.intervals import student_quantile  # noqa: PLC0415 scipy, late

    third = series.size // 3
    if series.size < _LEAST_PIECES:
        return None
    first, last = series[:third], series[-third:]
    before, after = float(first.mean()), float(last.mean())
    error = float(np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / third))
    is_apart = abs(after - before) > student_quantile(2 * third - 2, 0.9995) * error
    if before > 0 and is_apart and abs(after - before) > _DRIFT * before:
        return before, after
    return None
