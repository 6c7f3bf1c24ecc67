"""Two summaries side by side: what `bakeoff compare A B` compares, the same candidate included."""

from collections.abc import Mapping
from dataclasses import replace

from harness.analysis.compare import compare_cells
from harness.analysis.model import Candidate, Cell, Summary
from harness.types import RunInfo


def compare_summaries(a: Summary, b: Summary, *, names: tuple[str, str]) -> Summary:
    """One summary of both whose verdicts compare every candidate of A with every one of B.

    `names`: what the arms are called; they join labels, keys and run ids, so that a candidate
    measured in both is compared with itself, as before and after a change.
    """
    left, right = (_named(part, name) for part, name in zip((a, b), names, strict=True))
    runs: Mapping[str, RunInfo] = {**left.runs, **right.runs}
    verdicts = [
        verdict
        for mine in left.cells
        for other in right.cells
        if mine.workload.key == other.workload.key
        for verdict in compare_cells(mine, other, runs=runs)
    ]
    cells = sorted((*left.cells, *right.cells), key=lambda cell: cell.workload.key)
    return Summary(
        title=f"{names[0]} against {names[1]}",
        cells=tuple(cells),
        verdicts=tuple(verdicts),
        failed=(*left.failed, *right.failed),
        doubts=(*left.doubts, *right.doubts),
        runs=runs,
        measures=(*left.measures, *right.measures),
        found=(*left.found, *right.found),
    )


def _named(summary: Summary, name: str) -> Summary:
    return replace(
        summary,
        cells=tuple(_named_cell(cell, name) for cell in summary.cells),
        runs={f"{name}/{key}": info for key, info in summary.runs.items()},
        measures=tuple(
            replace(m, candidate=f"{name}:{m.candidate}", label=f"{m.label} ({name})")
            for m in summary.measures
        ),
        found=tuple(
            replace(f, candidate=_named_candidate(f.candidate, name)) for f in summary.found
        ),
    )


def _named_cell(cell: Cell, name: str) -> Cell:
    candidate = _named_candidate(cell.candidate, name)
    return replace(cell, candidate=candidate, run_ids=tuple(f"{name}/{i}" for i in cell.run_ids))


def _named_candidate(candidate: Candidate, name: str) -> Candidate:
    key, label = f"{name}:{candidate.key}", f"{candidate.label} ({name})"
    return replace(candidate, key=key, label=label)
