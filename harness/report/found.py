"""The highest rate that meets the SLO, as searches found it: in words, and rate by rate.

Light on purpose: the terminal reads it too.
"""

from dataclasses import dataclass

from harness.analysis.agreement import TriedRate
from harness.analysis.model import FoundRate, Summary
from harness.units import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRow:
    """One rate as text; `exact`: `repr` of the rate that is stored."""

    rate: str
    exact: str
    outcome: str
    attainment: str
    n: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """One search over all its runs."""

    title: str
    says: str
    rows: tuple[TriedRow, ...]
    runs: str
    emulated: bool


def found_lines(summary: Summary) -> list[str]:
    """A sentence for each search."""
    return [f"{_says(found)}." for found in summary.found]


def found_tables(summary: Summary) -> list[FoundTable]:
    """Every rate that was tried, search by search."""
    return [
        FoundTable(
            title=f"{found.candidate.label}, {found.scenario}",
            says=f"{_says(found)}.",
            rows=tuple(_row(tried) for tried in found.tried),
            runs=", ".join(found.run_ids),
            emulated=found.emulated,
        )
        for found in summary.found
    ]


def _says(found: FoundRate) -> str:
    share = f"{percent(found.attainment_ratio)} of its requests within {found.slo}"
    who = f"{found.candidate.label} at {found.scenario}"
    if found.low_rps is None:
        beyond = f", not even {_rate(found.high_rps)}" if found.high_rps else ""
        return f"{who}: no rate keeps {share}{beyond}{_trust(found)}"
    if found.high_rps is None:
        return f"{who} keeps {share} at {_rate(found.low_rps)} and perhaps above{_trust(found)}"
    return (
        f"{who} keeps {share} up to between {_rate(found.low_rps)} and "
        f"{_rate(found.high_rps)}{_trust(found)}"
    )


def _trust(found: FoundRate) -> str:
    if not found.fresh_runs:
        said = "one server start, not confirmed by fresh runs"
    elif found.low_confirmed == found.high_confirmed == found.fresh_runs:
        said = f"confirmed by all {found.fresh_runs} fresh runs"
    elif found.is_confirmed:
        said = (
            f"confirmed: {found.low_confirmed} fresh runs passed the lower end, "
            f"{found.high_confirmed} failed the upper one"
        )
    else:
        said = (
            f"of {found.fresh_runs} fresh runs {found.low_confirmed} confirm the lower end and "
            f"{found.high_confirmed} the upper one"
        )
    noisy = "; the rates do not agree with each other: noisy" if found.is_noisy else ""
    emulated = "; emulated, no evidence about a real engine" if found.emulated else ""
    return f" ({said}{noisy}{emulated})"


def _rate(rate_rps: float | None) -> str:
    return "-" if rate_rps is None else f"{rate_rps:.3g} requests/s"


def _row(tried: TriedRate) -> TriedRow:
    total = tried.passes + tried.fails
    if total == 1:
        outcome = "passes" if tried.passes else "fails"
    else:
        outcome = f"passes in {tried.passes} of {total} runs"
    share = tried.attainment_ratio
    return TriedRow(
        rate=f"{tried.rate_rps:.3g}",
        exact=repr(tried.rate_rps),
        outcome=outcome,
        attainment="-" if share is None else percent(share),
        n=f"{tried.n:,}",
    )
