"""Doubts about the load of one level: was it what was asked, all of it, and enough?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.analysis.achieved import rates
from harness.analysis.doubts_client import lag_limit_s
from harness.analysis.model import Achieved
from harness.analysis.stats import minimum_n
from harness.types import Doubt, Phase, RunInfo, Severity
from harness.units import number, percent, seconds

if TYPE_CHECKING:
    from harness.analysis.views import LevelView

RATE_NOT_REACHED = "rate_not_reached"
_P99 = 0.99
_USERS_REACHED = 0.95  # of the users asked for
_RATE_REACHED = 0.99  # of the requests due; below _RATE_MISSED it is another load
_RATE_MISSED = 0.95


def load_doubts(info: RunInfo, view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    """Doubts about the load of one level; `found`: what came of it."""
    rows = view.measured
    yield from _cut_level(view)
    if not len(rows):
        yield Doubt(
            code="nothing_measured",
            what=f"no request was due in the measured window ({Phase.MEASURE.value})",
            advice="give the level more requests or time: load.requests, load.duration_s",
            severity=Severity.INVALID,
            where=view.level.name,
        )
        return
    yield from _rate(info, view, found)
    yield from _users(view, found)
    if view.level.exhausted:
        yield Doubt(
            code="plan_exhausted",
            what=f"the plan's {view.level.planned} requests ran out before the level's time",
            advice="give the level load.requests enough for its time, or a shorter time",
            where=view.level.name,
        )
    yield from _ramp(view) if view.level.shape == "ramp" else _few(view)


def _ramp(view: "LevelView") -> Iterator[Doubt]:
    yield Doubt(
        code="ramp",
        what="the rate rose through the window: no percentile and no attainment is given, since "
        "they would be of no one load",
        advice="play the rate that looks right as a level of its own: load=poisson",
        severity=Severity.NOTE,
        where=view.level.name,
    )


def _few(view: "LevelView") -> Iterator[Doubt]:
    need, n = minimum_n(_P99), int(view.measured["is_ok"].sum())
    if 0 < n < need:
        yield Doubt(
            code="few_samples",
            what=f"P99 needs {need} requests, has {n}",
            advice=f"load.requests={need} for a P99, or repeats; else read the P50 and P90",
            severity=Severity.NOTE,
            where=view.level.name,
        )


def _cut_level(view: "LevelView") -> Iterator[Doubt]:
    if not view.level.is_cut:
        return
    yield Doubt(
        code="cut_level",
        what="the level did not come to its own end (the load was ended before its time); its "
        f"window is what was played, {seconds(max(0.0, view.window_s))}",
        advice="measure it again; latencies of requests under way at the end are not known",
        where=view.level.name,
    )


def _rate(info: RunInfo, view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    asked, reached = rates(info, view, slack_s=lag_limit_s(info, view))
    if not asked or reached is None or reached >= _RATE_REACHED * asked:
        return
    lag = "" if found.lag_p99_s is None else f"; P99 lag {seconds(found.lag_p99_s)}"
    yield Doubt(
        code=RATE_NOT_REACHED,
        what=f"{number(asked)} requests/s were due and {number(reached)}/s were sent "
        f"({percent(reached / asked)}{lag})",
        advice="this is no result for the rate that was asked: use more load.workers, or ask less",
        severity=Severity.INVALID if reached < _RATE_MISSED * asked else Severity.WARN,
        where=view.level.name,
    )


def _users(view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    asked, reached = found.users, found.users_reached
    if not asked or reached is None or reached >= _USERS_REACHED * asked:
        return
    peak = "" if found.peak_in_flight is None else f", {found.peak_in_flight} at the most"
    yield Doubt(
        code="concurrency_not_reached",
        what=f"{asked} users were asked for and {number(reached)} were active on average{peak}",
        advice="something held requests back: the client, a proxy, or errors that users waited "
        "after",
        where=view.level.name,
    )
