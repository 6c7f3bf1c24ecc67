"""The last tests: what is wanted, may the contenders be compared, and is one of them best."""

import math

from harness.analysis.cost import cost_estimate
from harness.recommend.best import MIN_BLOCKS, rank
from harness.recommend.case import Case, Contender
from harness.recommend.model import Pick
from harness.recommend.objectives import OBJECTIVES, Objective, has_prices
from harness.recommend.tree import Answer
from harness.types import Doubt, Estimate, VerdictKind
from harness.units import percent

CHOSEN = 0.975  # P(best): with two contenders, their 95 % interval then excludes no difference
EQUAL = 0.9  # P(within 5 % of the best) that makes a tie

Place = tuple[str, int]  # a block of a sweep: only there were the contenders started together


def objective(case: Case) -> Answer:
    """Settle the objective and its metric; branches are the objectives, and missing."""
    wanted = _wanted(case)
    case.objective = wanted
    case.metric = next((m for m in wanted.metrics if _all_carry(case, m)), None)
    if case.metric is None:
        fact = f"not every contender carries {' or '.join(wanted.metrics)}: too few requests"
        return Answer(branch="missing", facts=(fact,))
    case.picks = [pick(contender, case) for contender in case.contenders]
    where = "the lowest load" if wanted.at_lowest_load else "the highest load that meets the SLO"
    if not case.asked.has_limits and not wanted.at_lowest_load:
        where = "the load with the most tokens/s"
    return Answer(branch=wanted.name, facts=(f"judged by {case.metric} at {where}",))


def _wanted(case: Case) -> Objective:
    priced = has_prices([contender.cell.candidate for contender in case.contenders])
    asked = case.asked.objective
    if asked is None:
        return OBJECTIVES["cost" if priced else "throughput"]
    if asked == "cost" and not priced:
        case.doubts.append(
            Doubt(
                code="no_price",
                what="no price in one currency is known for every candidate: no cost is given, "
                "and the highest throughput at the SLO is taken, the same order on one machine",
                advice="give hardware.price.per_hour with currency, date and source",
                where="recommendation",
            )
        )
        return OBJECTIVES["throughput"]
    return OBJECTIVES[asked]


def _all_carry(case: Case, metric: str) -> bool:
    for contender in case.contenders:
        figure = contender.cell.metrics.get(metric)
        if figure is None or figure.value is None or not math.isfinite(figure.value):
            return False
        per_run = contender.cell.per_run.get(metric, ())
        if not any(value is not None and math.isfinite(value) for value in per_run):
            return False
    return True


def pick(contender: Contender, case: Case) -> Pick:
    """A contender with its value of the objective and the interval."""
    assert case.metric is not None
    candidate = contender.cell.candidate
    figure: Estimate = contender.cell.metrics[case.metric]
    is_cost = case.goal.name == "cost"
    return Pick(
        candidate=candidate.label,
        engine=candidate.engine,
        level=contender.cell.workload.level,
        metric="cost_per_good_mtok" if is_cost else case.metric,
        unit=case.goal.unit,
        value=cost_estimate(candidate.price_per_hour, figure) if is_cost else figure,
        currency=candidate.currency if is_cost else None,
    )


def contenders(case: Case) -> Answer:
    """Count who is left to compare; branches one, several."""
    names = [contender.label for contender in case.contenders]
    if len(names) == 1:
        return Answer(branch="one", facts=(f"only {names[0]} is left",))
    return Answer(branch="several", facts=(f"{len(names)} are left: {', '.join(names)}",))


def comparable(case: Case) -> Answer:
    """Whether the comparability contract lets them be ranked; branches yes, no."""
    labels = {c.cell.candidate.key: c.label for c in case.contenders}
    workloads = {contender.cell.workload.key for contender in case.contenders}
    facts = dict.fromkeys(
        f"{labels[verdict.a]} and {labels[verdict.b]}: {verdict.reason}"
        for verdict in case.summary.verdicts
        if verdict.kind is VerdictKind.NOT_COMPARABLE
        and {verdict.a, verdict.b} <= set(labels)
        and verdict.workload in workloads
    )
    if facts:
        return Answer(branch="no", facts=tuple(facts))
    return Answer(branch="yes", facts=("no part of the comparison contract is broken",))


def block_values(case: Case) -> list[dict[Place, float]]:
    """Each contender's objective by block of a sweep, in the order of the contenders.

    Several runs in one block count as one, their mean; a run without the figure is left out.
    """
    assert case.metric is not None
    table: list[dict[Place, float]] = []
    for contender in case.contenders:
        cell = contender.cell
        found: dict[Place, list[float]] = {}
        sweeps = cell.sweeps or ("",) * len(cell.blocks)
        for sweep, block, value in zip(sweeps, cell.blocks, cell.per_run[case.metric], strict=True):
            if value is not None and math.isfinite(value) and value > 0:
                found.setdefault((sweep, block), []).append(value)
        price = cell.candidate.price_per_hour if case.goal.name == "cost" else None
        means = {place: sum(values) / len(values) for place, values in found.items()}
        table.append({p: v if price is None else price / v for p, v in means.items()})
    return table


def enough_blocks(case: Case) -> Answer:
    """Whether all contenders share enough blocks to tell luck from skill; branches yes, no."""
    table = block_values(case)
    shared = sorted(set.intersection(*(set(row) for row in table)))
    case.common_blocks = len(shared)
    fact = f"{len(shared)} blocks are common to all contenders, at least {MIN_BLOCKS} are needed"
    if len(shared) < MIN_BLOCKS:
        return Answer(branch="no", facts=(fact,))
    values = [[row[place] for place in shared] for row in table]
    case.ranking = rank(values, higher_is_better=case.goal.higher_is_better)
    return Answer(branch="yes", facts=(fact,))


def significance(case: Case) -> Answer:
    """Whether one is best; branches one, tie, open."""
    ranking = case.ranking
    assert ranking is not None
    leader = ranking.order[0]
    facts = tuple(
        f"{case.contenders[i].label}: P(best) {chance(ranking.p_best[i])}, "
        f"P(within 5 % of the best) {chance(ranking.p_near[i])}"
        for i in ranking.order
    )
    case.best = leader
    near = tuple(i for i in ranking.order if ranking.p_near[i] > EQUAL)
    if len(near) > 1:
        case.tied = near
        return Answer(branch="tie", facts=facts)
    return Answer(branch="one" if ranking.p_best[leader] >= CHOSEN else "open", facts=facts)


def chance(probability: float) -> str:
    """A probability for people; the draws do not resolve what is nearer to 0 or 1."""
    if probability > 0.999:  # noqa: PLR2004 -- one part in a thousand
        return "> 99.9 %"
    return "< 0.1 %" if probability < 0.001 else percent(probability)  # noqa: PLR2004
