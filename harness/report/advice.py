"""The recommender's decision in the page's words; nothing is decided here."""

from dataclasses import dataclass

from harness.analysis.metrics import BY_NAME
from harness.recommend.model import Decision, NextMeasurement, Pick, Status, Step
from harness.units import estimate_with_interval, number, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What the page shows of a decision."""

    question: str
    answer: str
    lines: tuple[str, ...]
    path: tuple[str, ...]
    flips: tuple[str, ...]
    next: NextMeasurement | None


def advice(decision: Decision) -> Advice:
    """A decision as sentences."""
    return Advice(
        question=_question(decision),
        answer=_answer(decision),
        lines=_lines(decision),
        path=tuple(_step(step) for step in decision.path),
        flips=tuple(
            f"{flip.variable}: {number(flip.now)} now, {flip.then} from {number(flip.flip_at)} "
            f"({'at the latest, ' if flip.is_bound else ''}{number(flip.pct)} %)"
            for flip in decision.flips
        ),
        next=decision.next_measurement,
    )


def _question(decision: Decision) -> str:
    asked = decision.question
    parts = [
        f"Scenario {asked.scenario or 'not given'}",
        f"SLO {asked.slo} ({asked.limits}) for {percent(asked.attainment_ratio)} of requests",
        f"objective {asked.objective or 'not settled'}",
    ]
    return "; ".join(parts) + "."


def _answer(decision: Decision) -> str:
    if decision.status is Status.REFUSED or decision.best is None:
        return f"No recommendation: {decision.refusal or 'the evidence carries no choice'}"
    if decision.status is Status.TIE:
        return f"A tie within 5 %: {', '.join(decision.tied)}."
    return f"Choose {_pick(decision.best)}."


def _pick(pick: Pick) -> str:
    unit = pick.unit if pick.currency is None else f"{pick.currency} {pick.unit}".strip()
    value = estimate_with_interval(pick.value, unit)
    known = BY_NAME.get(pick.metric)
    name = pick.metric if known is None else known.title
    return f"{pick.candidate} at {pick.level}: {name} {value}"


def _lines(decision: Decision) -> tuple[str, ...]:
    lines = list(decision.reasons)
    if decision.p_best is not None:
        lines.append(
            f"Probability of being the best: {percent(decision.p_best)}; of being within 5 % of "
            f"it: {percent(decision.p_within_5)}, from {decision.blocks} common blocks."
        )
    if decision.runner_up is not None:
        lines.append(f"Runner-up: {_pick(decision.runner_up)}.")
    lines += [f"Left out: {out.candidate}, {out.fact}" for out in decision.excluded]
    lines += [f"Rule {rule.rule}: {rule.says} ({rule.why})" for rule in decision.rules_overridden]
    return tuple(lines)


def _step(step: Step) -> str:
    facts = f" ({'; '.join(step.facts)})" if step.facts else ""
    return f"{step.question} {step.answer}{facts}"
