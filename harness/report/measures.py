"""What a scenario is about beyond the standard figures: its own measures, in words and tables.

Light on purpose: the terminal reads it too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.model import Summary
from harness.analysis.scenario_measures.table import Figure, Measure
from harness.units import estimate, interval

_MOST_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRow:
    """One figure of one candidate; `exact`: `repr` of the stored float, empty if there is none."""

    candidate: str
    level: str
    label: str
    text: str
    interval: str
    exact: str
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTable:
    """One measure of one scenario over all candidates; `says`: a sentence for each."""

    name: str
    title: str
    scenario: str
    formula: str
    better: str
    says: tuple[str, ...]
    rows: tuple[MeasureRow, ...]


def measure_tables(summary: Summary) -> list[MeasureTable]:
    """A table for each measure that a scenario names, in its order."""
    groups: dict[tuple[str, str], list[Measure]] = {}
    for measure in summary.measures:
        groups.setdefault((measure.scenario, measure.name), []).append(measure)
    return [_table(group) for group in groups.values()]


def measure_lines(summary: Summary, most: int = _MOST_LINES) -> list[str]:
    """At most so many sentences for the terminal, the measures named first before others."""
    lines = [
        f"{measure.kind.title}, {measure.label}: {measure.says}."
        for measure in _in_turn(summary.measures)
        if measure.figures
    ]
    return list(dict.fromkeys(lines))[:most]


def _in_turn(measures: Sequence[Measure]) -> list[Measure]:
    """The first measure of every candidate, then the second of every one, and so on."""
    seen: dict[tuple[str, str], int] = {}
    order = []
    for measure in measures:
        key = measure.candidate, measure.scenario
        seen[key] = seen.get(key, 0) + 1
        order.append((seen[key], measure))
    return [measure for _, measure in sorted(order, key=lambda pair: pair[0])]


def _table(group: Sequence[Measure]) -> MeasureTable:
    kind = group[0].kind
    return MeasureTable(
        name=kind.name,
        title=kind.title,
        scenario=group[0].scenario,
        formula=kind.formula,
        better=kind.better.value,
        says=tuple(f"{measure.label}: {measure.says}." for measure in group),
        rows=tuple(
            _row(measure, figure, is_first=i == 0)
            for measure in group
            for i, figure in enumerate(measure.figures)
        ),
    )


def _row(measure: Measure, figure: Figure, *, is_first: bool) -> MeasureRow:
    value = figure.value
    ends = interval(value.ci_low, value.ci_high, figure.unit) if value.value is not None else ""
    return MeasureRow(
        candidate=measure.label,
        level=figure.level or "whole run",
        label=figure.label,
        text=estimate(value, figure.unit),
        interval=ends.strip("[]"),
        exact="" if value.value is None else repr(value.value),
        is_first=is_first,
    )
