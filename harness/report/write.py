"""Writes the report: one HTML file that needs nothing but itself."""

from collections.abc import Sequence
from pathlib import Path

from harness.analysis.model import Summary
from harness.config import SloConf
from harness.errors import StoreWriteError
from harness.recommend.model import Decision
from harness.report.page import render
from harness.store import StoredRun


def write_report(
    summary: Summary,
    runs: Sequence[StoredRun],
    path: Path,
    *,
    slo: SloConf | None = None,
    decision: Decision | None = None,
) -> Path:
    """Write the report of a summary as one offline HTML file; equal inputs give equal bytes.

    Args:
        summary: what is told.
        runs: the stored runs behind it, for distributions and timelines.
        path: the file; its folder is made.
        slo: limits that attainment was judged by, drawn into the figures.
        decision: what the recommender says, if it was asked.

    Returns:
        `path`.

    Raises:
        StoreWriteError: the file cannot be written.
    """
    page = render(summary, runs, slo=slo, decision=decision)
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise StoreWriteError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path
