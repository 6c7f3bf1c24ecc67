"""The ends of the decision tree: each writes status, reasons and what to measure next."""

from statistics import median

from harness.recommend import advice
from harness.recommend.best import MIN_BLOCKS
from harness.recommend.case import Case, Contender
from harness.recommend.choice import chance
from harness.recommend.model import Fit, NextMeasurement, Status
from harness.recommend.slo import nearest_level, needed, share_words
from harness.types import Doubt
from harness.units import percent, seconds


def no_evidence(case: Case) -> None:
    """Nothing valid was measured for this question."""
    what = "; ".join(f"{item.candidate}: {item.fact}" for item in case.excluded[:3])
    scenarios = sorted({cell.workload.scenario for cell in case.summary.cells})
    asked = case.asked.scenario
    if asked and scenarios and asked not in scenarios:
        what = f"scenario={asked} was not measured; measured are {', '.join(scenarios)}"
    case.refuse(f"There is no valid measurement to answer from ({what or 'no run at all'}).")


def not_measured(case: Case) -> None:
    """The question names something that no run has."""
    case.refuse(f"The question cannot be answered: {case.last_facts[0]}.")


def several_questions(case: Case) -> None:
    """The runs answer several questions."""
    case.refuse(f"The runs answer several questions: {case.last_facts[0]}.")


def nothing_fits(case: Case) -> None:
    """Every candidate misses the SLO; the nearest miss is named with its distance."""
    nearest = nearest_level(case.scored)
    target = case.asked.slo.attainment_ratio
    short = target - (nearest.attainment.value or 0.0)
    case.refuse(
        f"Nothing meets the SLO {case.asked.slo.name} ({case.asked.limits()}): the nearest is "
        f"{nearest.cell.candidate.label} at {nearest.cell.workload.level} with "
        f"{share_words(nearest)}, {percent(short)} short of {percent(target)}."
    )
    case.next_measurement = advice.lower_load(case)


def too_few_requests(case: Case) -> None:
    """Nobody is shown to meet the SLO, and not everybody is shown to miss it."""
    target = case.asked.slo.attainment_ratio
    unknown = [scored for scored in case.scored if scored.fit is Fit.UNKNOWN]
    nearest = nearest_level(unknown)
    wanted = needed(nearest, target)
    more = f"; about {wanted} requests would settle it" if wanted else ""
    case.refuse(
        f"Too few requests to tell whether the SLO {case.asked.slo.name} is kept for "
        f"{percent(target)} of them: {nearest.cell.candidate.label} at "
        f"{nearest.cell.workload.level} has {share_words(nearest)}{more}."
    )
    case.next_measurement = advice.more_requests(case)


def no_metric(case: Case) -> None:
    """The objective's figure is missing for a contender."""
    case.refuse(f"The contenders cannot be judged by {case.goal.name}: {case.last_facts[0]}.")
    contenders = [contender.scored for contender in case.contenders]
    case.next_measurement = NextMeasurement(
        command=advice.command(case, contenders, "load.requests=100"),
        why="percentiles need more requests than were measured",
    )


def the_only_one(case: Case) -> None:
    """One contender: it fits, but it is the best only in the sense that no other was shown to."""
    case.status, case.best = Status.CHOICE, 0
    label = case.contenders[0].label
    measured = {scored.key for scored in case.scored}
    if len(measured) == 1:
        case.reasons.append(f"{label} fits, but it was not compared: no other was measured.")
        case.next_measurement = advice.another_engine(case)
        return
    case.reasons.append(f"{label} is the only one that is shown to meet the SLO.")
    if any(s.fit is Fit.UNKNOWN and s.key != case.contenders[0].scored.key for s in case.scored):
        case.next_measurement = advice.more_requests(case)
        return
    case.next_measurement = advice.probe_capacity(case)


def not_comparable(case: Case) -> None:
    """The comparability contract forbids ranking them."""
    case.refuse(f"The contenders may not be ranked: {case.last_facts[0]}.")


def too_few_blocks(case: Case) -> None:
    """Without blocks in common, a difference may be luck."""
    have = case.common_blocks
    names = " and ".join(contender.label for contender in case.contenders)
    case.refuse(
        f"{names} meet the SLO, but share {have} block{'' if have == 1 else 's'}; at least "
        f"{MIN_BLOCKS} are needed to tell a difference from luck, {advice.USUAL_REPEATS} are usual."
    )
    case.next_measurement = advice.more_blocks(case)


def undecided(case: Case) -> None:
    """Neither one best nor a tie: more blocks are needed."""
    assert case.ranking is not None
    leader, second = (case.contenders[i] for i in case.ranking.order[:2])
    case.next_measurement = advice.more_blocks(case)
    case.best = None
    case.refuse(
        f"{leader.label} leads {second.label}, but is the best only with P "
        f"{chance(case.ranking.p_best[case.ranking.order[0]])} over {case.ranking.blocks} blocks; "
        f"{case.next_measurement.why}."
    )


def chosen(case: Case) -> None:
    """One is best with enough certainty."""
    assert case.ranking is not None
    assert case.best is not None
    case.status = Status.CHOICE
    case.reasons.append(
        f"{case.contenders[case.best].label} is {case.goal.words} with P "
        f"{chance(case.ranking.p_best[case.best])} over {case.ranking.blocks} common blocks."
    )
    _note_unreached(case)
    case.next_measurement = advice.probe_capacity(case)


def tied(case: Case) -> None:
    """Several are as good; broken by what running them takes, and said so."""
    case.status = Status.TIE
    names = [case.contenders[i].label for i in case.tied]
    case.best = min(case.tied, key=lambda i: _trouble(case, case.contenders[i]))
    kept = case.contenders[case.best]
    failed, ready_s, _ = _trouble(case, kept)
    ready = f", ready in {seconds(ready_s)}" if ready_s != float("inf") else ""
    case.reasons.append(
        f"{' and '.join(names)} are within 5 % of each other; {kept.label} is named for "
        f"fewer failed starts, then a shorter start, then its name ({failed} failed{ready})."
    )
    _note_unreached(case)
    case.next_measurement = advice.probe_capacity(case)


def _trouble(case: Case, contender: Contender) -> tuple[int, float, str]:
    """What it takes to run it: failed starts, median time to ready (s), name."""
    key = contender.cell.candidate.key
    failed = sum(run.candidate.key == key for run in case.summary.failed)
    runs = [case.summary.runs[r] for r in contender.cell.run_ids if r in case.summary.runs]
    ready = [run.time_to_ready_s for run in runs if run.time_to_ready_s is not None]
    return failed, median(ready) if ready else float("inf"), contender.label


def _note_unreached(case: Case) -> None:
    """A contender that was never pushed to the best's load may carry it as well."""
    assert case.best is not None
    best = case.contenders[case.best]
    for contender in case.contenders:
        if contender.above is None and contender.scored.load < best.scored.load:
            case.doubts.append(
                Doubt(
                    code="load_not_reached",
                    what=f"{contender.label} was not measured above "
                    f"{contender.cell.workload.level}, {best.label} was",
                    advice=f"measure it at {best.cell.workload.level} before you decide",
                    where="recommendation",
                )
            )
