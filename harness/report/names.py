"""Candidates and workloads of a summary, in the order of its cells, and what they are called."""

from harness.analysis.model import Candidate, Summary, Workload


def candidates_of(summary: Summary) -> tuple[Candidate, ...]:
    """Every candidate with figures, once: those of cells, then those that were only searched."""
    measured = [cell.candidate for cell in summary.cells]
    searched = [found.candidate for found in summary.found]
    return tuple({one.key: one for one in (*measured, *searched)}.values())


def workloads_of(summary: Summary) -> tuple[Workload, ...]:
    """Every workload with figures, once."""
    return tuple({cell.workload.key: cell.workload for cell in summary.cells}.values())


def candidate_labels(summary: Summary) -> dict[str, str]:
    """Every candidate's label by its key, failed ones included."""
    pairs = [cell.candidate for cell in summary.cells] + [f.candidate for f in summary.failed]
    return {candidate.key: candidate.label for candidate in pairs}


def workload_labels(summary: Summary) -> dict[str, str]:
    """Every workload's label by its key."""
    return {w.key: w.label for w in workloads_of(summary)}
