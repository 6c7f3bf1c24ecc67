"""The cost part of the page: prices given by the user, or how to give one."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.model import Candidate, Cell, Summary
from harness.config import SloConf
from harness.report.answer import keeps_slo
from harness.report.columns import COST, Column, used_columns
from harness.report.names import candidates_of
from harness.report.tables import Number, number_of
from harness.units import number

_HOW = (
    "bakeoff run ... hardware.price.per_hour=2.29 hardware.price.currency=EUR "
    "hardware.price.date=2026-11-30 hardware.price.source=invoice"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One candidate at the load at which it is cheapest; numbers as the section's columns."""

    label: str
    price: str
    source: str
    load: str
    numbers: tuple[Number, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSection:
    """Everything the cost part shows; no rows without a price."""

    lead: str
    columns: tuple[Column, ...] = ()
    rows: tuple[CostRow, ...] = ()
    how: str = ""


def cost_section(summary: Summary, slo: SloConf | None) -> CostSection:
    """Cost at the load that is cheapest among those that keep the SLO; all loads without one."""
    columns = tuple(column for column in used_columns(summary) if column.metric == COST)
    priced = [c for c in candidates_of(summary) if c.price_per_hour is not None]
    if not priced or not columns:
        lead = (
            "No price was given for this hardware, so no cost is stated. Give one when measuring:"
        )
        return CostSection(lead=lead, how=_HOW)
    has_slo = slo is not None and slo.name != "none"
    rows = [_row(summary, c, slo if has_slo else None, columns) for c in priced]
    which = f"among those that keep the SLO {slo.name}" if slo and has_slo else "of those measured"
    lead = (
        f"Price of an hour over what was delivered in it, at the cheapest load {which}. It holds "
        "for a machine that is busy all day; idle hours and spare machines come on top."
    )
    return CostSection(lead=lead, columns=columns, rows=tuple(rows))


def _row(
    summary: Summary, candidate: Candidate, slo: SloConf | None, columns: Sequence[Column]
) -> CostRow:
    cells = [cell for cell in summary.cells if cell.candidate.key == candidate.key]
    if slo is not None:
        cells = [cell for cell in cells if keeps_slo(cell, slo)]
    costed = [cell for cell in cells if _cost(cell, columns[0]) is not None]
    best = min(costed, key=lambda cell: _cost(cell, columns[0]) or 0.0, default=None)
    return CostRow(
        label=candidate.label,
        price=f"{number(candidate.price_per_hour)} {candidate.currency or ''} an hour",
        source=candidate.price_source or "source not given",
        load=best.workload.label if best else "no load keeps the SLO for certain",
        numbers=tuple(number_of(best, column) for column in columns) if best else (),
    )


def _cost(cell: Cell, column: Column) -> float | None:
    estimate = cell.metrics.get(column.metric)
    return estimate.value if estimate else None
