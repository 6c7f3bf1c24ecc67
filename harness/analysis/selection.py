"""Which of the stored runs count."""

from collections.abc import Sequence

from harness.analysis.candidates import candidate_of
from harness.errors import StoreFormatError
from harness.store import StoredRun
from harness.types import Doubt, Outcome, Severity

MEASURED = (Outcome.OK, Outcome.INVALID)


def newest(runs: Sequence[StoredRun]) -> tuple[list[StoredRun], list[Doubt]]:
    """Of each content the newest run that was measured; a doubt for each of the others.

    Contents are equal if configuration, plan, model and block are, on the same machine with the
    same engine version.
    """
    groups: dict[tuple[str, str], list[StoredRun]] = {}
    for run in runs:
        key = run.info.content_hash or run.info.run_id, candidate_of(run.info).key
        groups.setdefault(key, []).append(run)
    kept: list[StoredRun] = []
    notes: list[Doubt] = []
    for group in groups.values():
        best = max(group, key=_freshness)
        kept.append(best)
        notes += [_superseded(run, best) for run in group if run is not best]
    return kept, notes


def _freshness(run: StoredRun) -> tuple[bool, bool, str, str]:
    info = run.info
    ended = info.ended_at or ""
    return info.outcome is Outcome.OK, info.outcome in MEASURED, ended, info.run_id


def _superseded(run: StoredRun, by: StoredRun) -> Doubt:
    return Doubt(
        code="superseded",
        what=f"run {_name(run)} measured the same as {_name(by)} and is left out",
        advice="nothing to do; move the older folder away to be rid of this note",
        severity=Severity.NOTE,
        where=_name(run),
    )


def _name(run: StoredRun) -> str:
    return f"{run.folder.parent.name}/{run.folder.name}"


def damaged(run: StoredRun, error: StoreFormatError) -> Doubt:
    """The doubt that a run's unreadable tables become."""
    return Doubt(
        code="damaged_run",
        what=str(error),
        advice="move the folder away; the run will be measured again",
        where=_name(run),
    )
