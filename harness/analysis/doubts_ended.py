"""Doubts about how requests ended: failed, timed out, refused, cut off, lost."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from harness.analysis.facts import setting
from harness.analysis.model import Achieved
from harness.config import LoadConf, ValidityConf
from harness.types import Doubt, ErrorClass, RunInfo, Severity
from harness.units import number, seconds

if TYPE_CHECKING:
    from harness.analysis.views import LevelView


def ended_doubts(info: RunInfo, view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    """Doubts about the ends of one level's requests; `found`: what came of the level."""
    yield from _worker_lost(view)
    if not len(view.measured):
        return
    yield from _errors(info, view)
    yield from _timeouts(info, view, found)
    yield from _refused(view, found)
    yield from _retried(view, found)
    yield from _cut_off(view)


def _worker_lost(view: "LevelView") -> Iterator[Doubt]:
    client = view.level.client
    workers = client.workers_lost if client else 0
    rows = int((view.rows["error"] == ErrorClass.WORKER_LOST.value).sum())
    if not workers and not rows:
        return
    who = "a load process was"
    if client and workers:
        who = f"{workers} of {client.workers} load workers were"
    yield Doubt(
        code="worker_lost",
        what=f"{who} lost in the middle, and {rows} requests with it; what was measured is kept",
        advice="measure again; look for the memory and the network of the machine that was lost",
        severity=Severity.INVALID,
        where=view.level.name,
    )


def _errors(info: RunInfo, view: "LevelView") -> Iterator[Doubt]:
    ended = view.measured[~view.measured["is_censored"]]
    failed = ended[ended["is_failed"]]
    limit = float(setting(info, "validity.max_error_ratio", ValidityConf.max_error_ratio))
    if not len(failed) or len(failed) <= limit * len(ended):
        return
    kind = str(failed["error"].mode().iloc[0])
    messages = failed.loc[failed["error"] == kind, "error_message"].dropna()
    says = f": {messages.iloc[0]}" if len(messages) else ""
    is_all = len(failed) == len(view.measured)
    yield Doubt(
        code="all_failed" if is_all else "errors",
        what=f"{len(failed)} of {len(ended)} requests failed, most by {kind}{says}",
        advice="read engine.log in the run's folder; nothing was measured"
        if is_all
        else "read engine.log; failed requests count as slower than any answer, but so many "
        f"change the load itself: validity.max_error_ratio={limit:g}",
        severity=Severity.INVALID,
        where=view.level.name,
    )


def _timeouts(info: RunInfo, view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    if not found.timed_out:
        return
    limit = setting(info, "load.request_timeout_s")
    said = "the limit" if limit is None else f"load.request_timeout_s={number(float(limit))}"
    yield Doubt(
        code="timeouts",
        what=f"{found.timed_out} of {len(view.measured)} requests had no end after {said}",
        advice="they count as slower than any answer; raise the limit to see how slow they are",
        where=view.level.name,
    )


def _refused(view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    if not found.rate_limited:
        return
    wait_s = _longest_wait_s(view)
    asked = "" if wait_s is None else f", asked to wait up to {seconds(wait_s)}"
    yield Doubt(
        code="rate_limited",
        what=f"{found.rate_limited} of {len(view.measured)} requests were refused with 429{asked}",
        advice=f"lower the load, or let them be sent again: load.retries (default "
        f"{LoadConf.retries})",
        where=view.level.name,
    )


def _retried(view: "LevelView", found: Achieved) -> Iterator[Doubt]:
    if not found.retried:
        return
    most = int(np.nanmax(view.column("attempts")))
    yield Doubt(
        code="retried",
        what=f"{found.retried} of {len(view.measured)} requests were refused with 429 and sent "
        f"again, up to {most} times in all; their latency runs from the first time",
        advice="the server limits the rate: the figures are of that limit, not of the engine",
        severity=Severity.NOTE,
        where=view.level.name,
    )


def _longest_wait_s(view: "LevelView") -> float | None:
    waits_s = view.column("retry_after_s")
    return None if np.isnan(waits_s).all() else float(np.nanmax(waits_s))


def _cut_off(view: "LevelView") -> Iterator[Doubt]:
    cut = int(view.measured["is_censored"].sum())
    if cut:
        yield Doubt(
            code="censored",
            what=f"{cut} of {len(view.measured)} requests were cut off at the end of the drain",
            advice="raise load.drain_timeout_s; they count as slower than anything finished",
            where=view.level.name,
        )
