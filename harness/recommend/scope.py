"""The first tests: is there evidence for this question, and is it one question?

What cannot be evidence becomes an exclusion with its fact; nothing is left out in silence.
"""

from collections.abc import Callable
from dataclasses import dataclass

from harness.analysis.model import Cell
from harness.recommend.case import Asked, Case, load_of
from harness.recommend.model import Exclusion
from harness.recommend.tree import Answer
from harness.types import Doubt, Outcome, Severity

NOT_VALID = "measured, but not valid"
STALE_DAYS = 180  # method sheet, section 9, row 28


def measured(case: Case) -> Answer:
    """Keep what was really measured and is valid for this question; branches yes, no."""
    _leave_out(case, lambda cell: cell.emulated, "emulated runs are never evidence")
    _leave_out(case, _is_invalid, NOT_VALID)
    _note_invalid_runs(case)
    _note_failures(case)
    scenario = case.asked.scenario
    if scenario is not None:
        others = sorted({cell.workload.scenario for cell in case.cells} - {scenario})
        case.cells = [cell for cell in case.cells if cell.workload.scenario == scenario]
        if not case.cells and others:
            return Answer(
                branch="no",
                facts=(f"no valid run of scenario={scenario}; measured are {', '.join(others)}",),
            )
    if not case.cells:
        left_out = tuple(f"{item.candidate}: {item.fact}" for item in case.excluded)
        return Answer(branch="no", facts=left_out or ("no run was measured",))
    runs = {run for cell in case.cells for run in cell.run_ids}
    labels = sorted({cell.candidate.label for cell in case.cells})
    return Answer(branch="yes", facts=(f"{len(runs)} valid runs of {', '.join(labels)}",))


def _leave_out(case: Case, is_out: Callable[[Cell], bool], fact: str) -> None:
    out = [cell for cell in case.cells if is_out(cell)]
    case.cells = [cell for cell in case.cells if not is_out(cell)]
    for label in dict.fromkeys(cell.candidate.label for cell in out):
        runs = {r for cell in out if cell.candidate.label == label for r in cell.run_ids}
        case.excluded.append(
            Exclusion(candidate=label, fact=fact, run_ids=tuple(sorted(runs)), test="measured")
        )


def _is_invalid(cell: Cell) -> bool:
    return any(doubt.severity is Severity.INVALID for doubt in cell.doubts)


def _note_invalid_runs(case: Case) -> None:
    """Runs that the analysis left out of its cells, so that they do not vanish."""
    used = {run for cell in case.summary.cells for run in cell.run_ids}
    for run_id, info in case.summary.runs.items():
        if info.outcome is Outcome.INVALID and run_id not in used:
            case.excluded.append(
                Exclusion(candidate=info.engine, fact=NOT_VALID, run_ids=(run_id,), test="measured")
            )


def _note_failures(case: Case) -> None:
    scenario = case.asked.scenario
    for failed in case.summary.failed:
        if scenario is None or failed.scenario == scenario:
            case.excluded.append(
                Exclusion(
                    candidate=failed.candidate.label,
                    fact=f"{failed.outcome.value}: {failed.reason}",
                    run_ids=(failed.run_id,),
                    test="measured",
                )
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One thing in which runs must agree to answer one question: a text, and what was asked."""

    key: str
    of: Callable[[Cell], str]
    asked: Callable[[Asked], str | int | None]

    def matches(self, cell: Cell, asked: str | int) -> bool:
        """Whether the cell is what was asked for; a range of lengths goes by its upper end."""
        text = self.of(cell)
        return text == asked if isinstance(asked, str) else text.split("-")[-1] == str(asked)


def _range(lengths: tuple[int, int]) -> str:
    least, most = lengths
    return str(most) if least == most else f"{least}-{most}"


DIMENSIONS = (
    Dimension(key="scenario", of=lambda c: c.workload.scenario, asked=lambda a: a.scenario),
    Dimension(
        key="input_tokens",
        of=lambda c: _range(c.workload.input_tokens),
        asked=lambda a: a.input_tokens,
    ),
    Dimension(
        key="output_tokens",
        of=lambda c: _range(c.workload.output_tokens),
        asked=lambda a: a.output_tokens,
    ),
    Dimension(key="model", of=lambda c: c.candidate.model, asked=lambda a: a.model),
    Dimension(key="hardware", of=lambda c: c.candidate.hardware, asked=lambda a: a.hardware),
)


def one_question(case: Case) -> Answer:
    """Narrow to one scenario, length class, model and machine; branches yes, several, none."""
    facts: list[str] = []
    for dimension in DIMENSIONS:
        choices = sorted({dimension.of(cell) for cell in case.cells}, key=_by_size)
        asked = dimension.asked(case.asked)
        if asked is not None:
            case.cells = [cell for cell in case.cells if dimension.matches(cell, asked)]
        left = sorted({dimension.of(cell) for cell in case.cells}, key=_by_size)
        if not left:
            fact = (
                f"nothing was measured at {dimension.key}={asked}; measured: {', '.join(choices)}"
            )
            return Answer(branch="none", facts=(fact,))
        if len(left) > 1:
            fact = f"{dimension.key} differs between the runs: say which of {', '.join(left)}"
            return Answer(branch="several", facts=(fact,))
        facts.append(f"{dimension.key}={left[0]}")
    facts += _one_kind_of_load(case)
    if not case.cells:
        return Answer(branch="none", facts=(_load_fact(case),))
    _note_age(case)
    return Answer(branch="yes", facts=tuple(facts))


def _by_size(text: str) -> tuple[int, str]:
    return (len(text), text) if text[:1].isdigit() else (0, text)


def _one_kind_of_load(case: Case) -> list[str]:
    """Open and closed loads answer different questions: keep the kind that compares the most."""
    asked = case.asked
    if asked.users is not None:
        case.cells = [c for c in case.cells if c.workload.closed and load_of(c) >= asked.users]
        return [f"load of {asked.users} users or more"]
    if asked.rate_rps is not None:
        rate = asked.rate_rps
        case.cells = [c for c in case.cells if not c.workload.closed and load_of(c) >= rate]
        return [f"load of {rate:g} requests a second or more"]
    kinds = {c.workload.closed for c in case.cells}
    if len(kinds) == 1:
        return ["closed load" if kinds.pop() else "open load"]
    count = {
        kind: len({c.candidate.key for c in case.cells if c.workload.closed is kind})
        for kind in (True, False)
    }
    keep = count[True] > count[False]
    case.cells = [c for c in case.cells if c.workload.closed is keep]
    return [f"open and closed loads were measured; judged on the {'closed' if keep else 'open'}"]


def _load_fact(case: Case) -> str:
    asked = case.asked
    what = f"{asked.users} users" if asked.users is not None else f"{asked.rate_rps:g} requests/s"
    return f"nothing was measured at {what} or more"


def _note_age(case: Case) -> None:
    today = case.asked.today
    dates = [cell.measured_at[:10] for cell in case.cells if cell.measured_at]
    if today is None or not dates:
        return
    oldest = min(dates)
    age_days = (today - today.fromisoformat(oldest)).days
    if age_days > STALE_DAYS:
        case.doubts.append(
            Doubt(
                code="old_evidence",
                what=f"the oldest run is {age_days} days old ({oldest})",
                advice="engines change monthly: measure again with rerun=true",
                where="recommendation",
            )
        )
