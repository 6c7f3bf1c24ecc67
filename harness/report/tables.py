"""The rows of the page's tables as plain values; the template only lays them out."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.metrics import METRICS
from harness.analysis.model import Cell, Summary
from harness.report.columns import Column, column_of, interval_text, used_columns, value_text
from harness.report.names import candidate_labels, candidates_of, workloads_of
from harness.types import Estimate, Verdict, VerdictKind
from harness.units import number

_NOTHING = Estimate(value=None)
_ORDER = {metric.name: i for i, metric in enumerate(METRICS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One figure as it is shown, with what is needed to find it again in the Parquet.

    `value`, `low`, `high`: `repr` of the stored floats, empty if there is none. `cell`: candidate
    and workload key.
    """

    metric: str
    cell: str
    text: str
    interval: str
    value: str
    low: str
    high: str

    @property
    def is_missing(self) -> bool:
        """Whether the text says why there is no figure."""
        return not self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One candidate at one workload; `position`: the candidate's place in the legend."""

    cell: Cell
    id: str
    position: int
    is_first: bool
    numbers: tuple[Number, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCell:
    """One comparison; `kind` None where none was made, `winner` the better one's key."""

    kind: VerdictKind | None
    winner: str = ""
    text: str = ""
    interval: str = ""
    note: str = ""
    ratio: str = ""
    metric: str = ""
    cell: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTable:
    """All verdicts of one pair: a row a workload, a column a metric."""

    a: str
    b: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[VerdictCell, ...]], ...]


def cell_id(cell: Cell) -> str:
    """How the page names a cell in `data-cell`."""
    return f"{cell.candidate.key}|{cell.workload.key}"


def number_of(cell: Cell, column: Column) -> Number:
    """One figure of a cell, ready to be shown."""
    estimate = cell.metrics.get(column.metric, _NOTHING)
    return Number(
        metric=column.metric,
        cell=cell_id(cell),
        text=value_text(estimate, column),
        interval=interval_text(estimate, column),
        value=_repr(estimate.value),
        low=_repr(estimate.ci_low),
        high=_repr(estimate.ci_high),
    )


def _repr(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def comparison(summary: Summary) -> tuple[tuple[Column, ...], list[Row]]:
    """The columns that carry anything, and a row for each candidate at each workload."""
    columns = used_columns(summary)
    order = {candidate.key: i for i, candidate in enumerate(candidates_of(summary))}
    rows = []
    for workload in workloads_of(summary):
        cells = [cell for cell in summary.cells if cell.workload.key == workload.key]
        for i, cell in enumerate(cells):
            numbers = tuple(number_of(cell, column) for column in columns)
            position = order[cell.candidate.key]
            rows.append(
                Row(
                    cell=cell, id=cell_id(cell), position=position, is_first=i == 0, numbers=numbers
                )
            )
    return columns, rows


def pair_tables(summary: Summary) -> list[PairTable]:
    """One table of verdicts for each pair of candidates that was compared."""
    labels = candidate_labels(summary)
    tables = []
    for a, b in dict.fromkeys((v.a, v.b) for v in summary.verdicts):
        mine = [v for v in summary.verdicts if (v.a, v.b) == (a, b)]
        names = sorted({v.metric for v in mine}, key=lambda name: _ORDER.get(name, len(_ORDER)))
        rows = tuple(
            (workload.label, tuple(_verdict_cell(mine, workload.key, name) for name in names))
            for workload in workloads_of(summary)
            if any(v.workload == workload.key for v in mine)
        )
        columns = tuple(column_of(name) for name in names)
        tables.append(PairTable(a=labels.get(a, a), b=labels.get(b, b), columns=columns, rows=rows))
    return tables


def _verdict_cell(verdicts: Sequence[Verdict], workload: str, metric: str) -> VerdictCell:
    v = next((v for v in verdicts if (v.workload, v.metric) == (workload, metric)), None)
    if v is None:
        return VerdictCell(kind=None)
    interval = ""
    if v.ci_low is not None and v.ci_high is not None:
        interval = f"{number(v.ci_low)}–{number(v.ci_high)}"
    note = v.reason
    if v.kind is VerdictKind.INCONCLUSIVE and v.runs_needed is not None:
        note = f"needs about {v.runs_needed} blocks, has {v.blocks}"
    winner = {VerdictKind.BETTER: v.a, VerdictKind.WORSE: v.b}.get(v.kind, "")
    return VerdictCell(
        kind=v.kind,
        winner=winner,
        text="" if v.ratio is None else f"{number(v.ratio)} ×",
        interval=interval,
        note=note,
        ratio=_repr(v.ratio),
        metric=metric,
        cell=f"{v.a}|{v.b}|{workload}",
    )
