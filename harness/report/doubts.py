"""Every reason to distrust a summary, gathered once for the page and the terminal."""

from collections.abc import Iterator
from dataclasses import dataclass

from harness.analysis.model import Summary
from harness.types import Doubt, Severity

_WEIGHT = (Severity.INVALID, Severity.WARN, Severity.NOTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtGroup:
    """Doubts of one kind that call for one action; `found`: what was seen, and where."""

    code: str
    severity: Severity
    advice: str
    found: tuple[tuple[str, tuple[str, ...]], ...]


def doubt_groups(summary: Summary) -> list[DoubtGroup]:
    """Every doubt of the summary, its cells and its runs, once, worst first."""
    groups: dict[tuple[str, Severity, str], dict[str, dict[str, None]]] = {}
    for doubt, place in _placed(summary):
        found = groups.setdefault((doubt.code, doubt.severity, doubt.advice), {})
        found.setdefault(doubt.what, {})[place] = None
    return sorted(
        (
            DoubtGroup(
                code=code,
                severity=severity,
                advice=advice,
                found=tuple((what, tuple(filter(None, at))) for what, at in found.items()),
            )
            for (code, severity, advice), found in groups.items()
        ),
        key=lambda group: _WEIGHT.index(group.severity),
    )


def _placed(summary: Summary) -> Iterator[tuple[Doubt, str]]:
    for doubt in summary.doubts:
        yield doubt, doubt.where
    for cell in summary.cells:
        place = f"{cell.candidate.label}, {cell.workload.label}"
        for doubt in cell.doubts:
            yield doubt, doubt.where or place
    for run_id, run in summary.runs.items():
        for doubt in run.doubts:
            yield doubt, doubt.where or run_id
