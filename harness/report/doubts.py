"""Every reason to distrust a summary, gathered once for the page and the terminal."""

from harness.analysis.model import Summary
from harness.types import Doubt, Severity

_WEIGHT = (Severity.INVALID, Severity.WARN, Severity.NOTE)


def all_doubts(summary: Summary) -> list[tuple[Doubt, tuple[str, ...]]]:
    """Every doubt once, worst first, with the places that it was raised at."""
    places: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], Doubt] = {}
    labelled = [(doubt, doubt.where) for doubt in summary.doubts]
    for cell in summary.cells:
        place = f"{cell.candidate.label}, {cell.workload.label}"
        labelled += [(doubt, doubt.where or place) for doubt in cell.doubts]
    for run_id, run in summary.runs.items():
        labelled += [(doubt, doubt.where or run_id) for doubt in run.doubts]
    for doubt, place in labelled:
        key = (doubt.code, doubt.what)
        first.setdefault(key, doubt)
        if place and place not in places.setdefault(key, []):
            places[key].append(place)
    keys = sorted(first, key=lambda key: _WEIGHT.index(first[key].severity))
    return [(first[key], tuple(places.get(key, []))) for key in keys]
