"""The SLO test: who keeps it, at which load, judged on the interval's bound.

A candidate meets the SLO at a level if even the lower bound of its share of good requests
reaches the ratio asked, misses it if the upper bound stays below, and else it is not known.
"""

from harness.analysis.model import Cell
from harness.recommend.bounds import attainment, requests_needed
from harness.recommend.case import Case, Contender, Scored, load_of
from harness.recommend.model import Exclusion, Fit
from harness.recommend.objectives import ATTAINMENT, OUTPUT_TOKENS
from harness.recommend.tree import Answer
from harness.types import Doubt, Estimate
from harness.units import percent


def slo_met(case: Case) -> Answer:
    """Find each candidate's level; branches met, unknown (more requests needed), missed."""
    if case.asked.objective == "latency":
        _keep_lowest_load(case)
    case.scored = [score(cell, case) for cell in case.cells]
    case.scored.sort(key=lambda scored: (scored.cell.candidate.label, scored.load))
    facts: list[str] = []
    unknown = False
    for key in dict.fromkeys(scored.key for scored in case.scored):
        levels = [scored for scored in case.scored if scored.key == key]
        met = [scored for scored in levels if scored.fit is Fit.MET]
        if met:
            at = _judged_at(met, case)
            contender = Contender(scored=at, above=_above(levels, at))
            case.contenders.append(contender)
            facts.append(_met_fact(contender, case))
            _note_order(case, levels, at)
            continue
        nearest = nearest_level(levels)
        facts.append(_miss_fact(nearest, case))
        unknown = unknown or any(scored.fit is Fit.UNKNOWN for scored in levels)
        _exclude(case, nearest)
    branch = "met" if case.contenders else "unknown" if unknown else "missed"
    return Answer(branch=branch, facts=tuple(facts))


def nearest_level(levels: list[Scored]) -> Scored:
    """The level at which a candidate comes nearest to the SLO."""
    return max(levels, key=lambda scored: scored.attainment.value or 0.0)


def score(cell: Cell, case: Case) -> Scored:
    """Judge one cell. Without any limit every valid cell meets the SLO."""
    given = cell.metrics.get(ATTAINMENT)
    if not case.asked.has_limits:
        share = attainment(cell.n_ok, cell.n, None)
        return Scored(cell=cell, attainment=share, fit=Fit.MET)
    if cell.n > 0 and cell.n_ok == 0:
        given = Estimate(value=0.0)  # every request failed: none of them was good
    if given is None or given.value is None or cell.n == 0:
        return Scored(cell=cell, attainment=Estimate(value=None), fit=Fit.UNKNOWN)
    share = attainment(round(given.value * cell.n), cell.n, given.n_eff)
    assert share.ci_low is not None
    assert share.ci_high is not None
    target = case.asked.slo.attainment_ratio
    fit = Fit.UNKNOWN
    if share.ci_low >= target:
        fit = Fit.MET
    elif share.ci_high < target:
        fit = Fit.MISSED
    return Scored(cell=cell, attainment=share, fit=fit)


def needed(scored: Scored, target: float) -> int | None:
    """Requests in all that would settle an unknown cell; None if none would."""
    share = scored.attainment.value
    return None if share is None else requests_needed(share, target)


def _keep_lowest_load(case: Case) -> None:
    """Latency is compared at one load, the lowest; who was not measured there cannot be."""
    lowest = min(load_of(cell) for cell in case.cells)
    kept = [cell for cell in case.cells if load_of(cell) == lowest]
    keys = {cell.candidate.key for cell in kept}
    for cell in case.cells:
        if cell.candidate.key not in keys:
            fact = f"not measured at {kept[0].workload.level}, where latency is compared"
            case.excluded.append(
                Exclusion(
                    candidate=cell.candidate.label, fact=fact, run_ids=cell.run_ids, test="slo_met"
                )
            )
    case.cells = kept


def _judged_at(met: list[Scored], case: Case) -> Scored:
    """The highest load that meets the SLO; without one, the load with the most tokens/s."""
    if case.asked.has_limits:
        return met[-1]
    return max(met, key=_tokens_per_s)


def _tokens_per_s(scored: Scored) -> float:
    figure = scored.cell.metrics.get(OUTPUT_TOKENS)
    return figure.value if figure is not None and figure.value is not None else 0.0


def _above(levels: list[Scored], at: Scored) -> Scored | None:
    higher = [scored for scored in levels if scored.load > at.load]
    return min(higher, key=lambda scored: scored.load) if higher else None


def _met_fact(contender: Contender, case: Case) -> str:
    scored = contender.scored
    where = f"{contender.label} at {scored.cell.workload.level}"
    if not case.asked.has_limits:
        return f"{where}: no limit was asked, {scored.cell.n_ok} of {scored.cell.n} requests ok"
    return f"{where} keeps it: {share_words(scored)}"


def _miss_fact(nearest: Scored, case: Case) -> str:
    where = f"{nearest.cell.candidate.label} at {nearest.cell.workload.level}"
    target = case.asked.slo.attainment_ratio
    if nearest.fit is Fit.MISSED:
        return f"{where} misses it: {share_words(nearest)}, asked {percent(target)}"
    more = needed(nearest, target)
    wanted = f"; about {more} requests would settle it" if more else ""
    return f"{where} is not known to keep it: {share_words(nearest)}{wanted}"


def share_words(scored: Scored) -> str:
    """The share of good requests with its interval, as a part of a sentence."""
    share = scored.attainment
    if share.value is None or share.ci_low is None or share.ci_high is None:
        return "no share of good requests is known"
    interval = f"{percent(share.ci_low)} to {percent(share.ci_high)}"
    return f"{percent(share.value)} of {share.n} requests good ({interval})"


def _exclude(case: Case, nearest: Scored) -> None:
    case.excluded.append(
        Exclusion(
            candidate=nearest.cell.candidate.label,
            fact=_miss_fact(nearest, case),
            run_ids=nearest.cell.run_ids,
            test="slo_met",
        )
    )


def _note_order(case: Case, levels: list[Scored], at: Scored) -> None:
    """A level that fails below one that holds is a sign of a noisy host (method sheet, 2.1)."""
    lower = (scored for scored in levels if scored.load < at.load)
    for scored in lower:
        if scored.fit is not Fit.MISSED:
            continue
        case.doubts.append(
            Doubt(
                code="attainment_not_monotone",
                what=f"{at.cell.candidate.label} misses the SLO at {scored.cell.workload.level} "
                f"but keeps it at the higher {at.cell.workload.level}",
                advice="the host was not steady: measure more blocks with repeats=5",
                where="recommendation",
            )
        )
