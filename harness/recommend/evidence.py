"""The evidence table: every cell that bears on the question, and which ones the answer rests on."""

from dataclasses import replace

from harness.recommend.case import Case, Scored
from harness.recommend.model import Evidence, Tier
from harness.recommend.objectives import SHOWN
from harness.recommend.slo import nearest_level
from harness.types import Doubt, Severity


def evidence_rows(case: Case) -> tuple[Evidence, ...]:
    """One row a cell in question order: cited ones first, then by candidate and load."""
    cited = _cited(case)
    rows = [
        _row(scored, case, scored.cell.workload.key in cited.get(scored.key, ()))
        for scored in case.scored
    ]
    return tuple(sorted(rows, key=lambda row: not row.cited))


def cited_doubts(case: Case) -> tuple[Doubt, ...]:
    """What weakens the cells that the contenders are judged by; notes are left to the report."""
    return tuple(
        replace(doubt, where=f"{contender.label}, {contender.cell.workload.level}")
        for contender in case.contenders
        for doubt in contender.cell.doubts
        if doubt.severity is not Severity.NOTE
    )


def _cited(case: Case) -> dict[str, set[str]]:
    """Workload keys by candidate key: judged levels, the ones just above, nearest misses."""
    cited: dict[str, set[str]] = {}
    for contender in case.contenders:
        for scored in (contender.scored, contender.above):
            if scored is not None:
                cited.setdefault(scored.key, set()).add(scored.cell.workload.key)
    for key in {scored.key for scored in case.scored} - set(cited):
        nearest = nearest_level([scored for scored in case.scored if scored.key == key])
        cited[key] = {nearest.cell.workload.key}
    return cited


def _row(scored: Scored, case: Case, is_cited: bool) -> Evidence:
    cell = scored.cell
    shown = dict.fromkeys((*((case.metric,) if case.metric else ()), *SHOWN))
    return Evidence(
        candidate=cell.candidate.label,
        engine=cell.candidate.engine,
        workload=cell.workload.label,
        level=cell.workload.level,
        tier=Tier.E1,
        run_ids=cell.run_ids,
        blocks=cell.blocks,
        n=cell.n,
        n_eff=scored.attainment.n_eff,
        fit=scored.fit,
        attainment=scored.attainment,
        metrics={name: cell.metrics[name] for name in shown if name in cell.metrics},
        date=cell.measured_at,
        cited=is_cited,
    )
