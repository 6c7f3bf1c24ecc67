"""Rules of thumb beside the measurement: shown where they apply, never obeyed.

`rules.jsonl` holds the engine-choosing rules of two selection guides, each judged: keep and
prior still stand as weak priors; stale, contra and bad ones are superseded, and `fix` says by
what. A measurement of this question outranks every rule.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from harness.analysis.facts import machine_of
from harness.errors import ConfigError
from harness.recommend.case import Case
from harness.recommend.model import RuleNote, Status

MANY_USERS, FEW_USERS = 8, 2
SAME_ENGINE = {"vllm_cpu": "vllm"}  # a rule on vllm speaks of its CPU build too
STANDING = ("keep", "prior")
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One line of rules.jsonl; `when` is an expression over facts, `then` names engines."""

    id: str
    when: str
    then: dict[str, list[Any]]
    status: str
    fix: str = ""
    evidence: str = ""

    def engines(self, *keys: str) -> tuple[str, ...]:
        """The engines that `then` names under these keys, in order."""
        named = [item for key in keys for item in self.then.get(key, [])]
        return tuple(item["engine"] if isinstance(item, dict) else item for item in named)


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, in the file's order."""
    text = Path(__file__).with_name("rules.jsonl").read_bytes()
    return tuple(msgspec.json.decode(line, type=Rule) for line in text.splitlines())


def holds(when: str, facts: Mapping[str, object]) -> bool | None:
    """Whether a condition holds; None where it needs a fact that is not known.

    Raises:
        ConfigError: for anything but and, or, not, comparisons, names and constants.
    """
    try:
        value = _value(ast.parse(when, mode="eval").body, facts)
    except (SyntaxError, TypeError) as error:
        raise ConfigError(f"when={when!r}: cannot be read as a condition ({error})") from error
    return None if value is _UNKNOWN else bool(value)


_UNKNOWN = object()


def _value(node: ast.expr, facts: Mapping[str, object]) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return facts.get(name, _UNKNOWN)
        case ast.Tuple(elts=elements):
            return tuple(_value(element, facts) for element in elements)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _value(operand, facts)
            return _UNKNOWN if inner is _UNKNOWN else not inner
        case ast.BoolOp(op=op, values=parts):
            return _joined([_value(part, facts) for part in parts], isinstance(op, ast.Or))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            sides = _value(left, facts), _value(right, facts)
            return _UNKNOWN if _UNKNOWN in sides else _COMPARE[type(op)](*sides)
    raise ConfigError(f"{ast.unparse(node)}: a rule may only use and, or, not and comparisons")


def _joined(values: list[object], is_or: bool) -> object:
    """`and` and `or` of three values: one decisive part settles it, whatever is unknown."""
    if any(value is not _UNKNOWN and bool(value) is is_or for value in values):
        return is_or
    return _UNKNOWN if _UNKNOWN in values else not is_or


def known_facts(case: Case) -> dict[str, object]:
    """What the question and the runs say, in the words of the rules; the rest stays unknown."""
    facts: dict[str, object] = {"always": True, "comparing": len(case.contenders) > 1}
    question = case.question()
    if question.objective:
        facts["objective"] = question.objective
    if question.scenario:
        facts["app"] = question.scenario
    best = case.contenders[case.best] if case.best is not None else None
    if best is not None and best.cell.workload.closed:
        if best.scored.load >= MANY_USERS:
            facts["concurrency"] = "high"
        elif best.scored.load <= FEW_USERS:
            facts["concurrency"] = "low"
    facts.update(_machine_facts(case))
    return facts


def _machine_facts(case: Case) -> dict[str, object]:
    """GPUs and their vendor, if the runs name their machine."""
    infos = [case.summary.runs.get(run) for cell in case.cells for run in cell.run_ids]
    machines = {machine_of(info) for info in infos if info is not None}
    if len(machines) != 1:
        return {}
    machine = machines.pop()
    if machine.gpus:
        is_nvidia = all("nvidia" in gpu.lower() for gpu in machine.gpus)
        return {"gpus": len(machine.gpus), **({"vendor": "nvidia"} if is_nvidia else {})}
    return {"gpus": 0} if machine.cpu_model else {}


def judge_rules(case: Case) -> tuple[tuple[RuleNote, ...], tuple[RuleNote, ...]]:
    """(agreeing, overridden) rules that apply to an answer; none without an answer."""
    if case.best is None or case.status is Status.REFUSED:
        return (), ()
    facts = known_facts(case)
    applying = [rule for rule in rules() if holds(rule.when, facts)]
    notes = [note for rule in applying for note in _judged(rule, case)]
    return (
        tuple(note for agrees, note in notes if agrees),
        tuple(note for agrees, note in notes if not agrees),
    )


def _judged(rule: Rule, case: Case) -> Iterator[tuple[bool, RuleNote]]:
    assert case.best is not None
    best = _family(case.contenders[case.best].cell.candidate.engine)
    measured = {_family(scored.cell.candidate.engine) for scored in case.scored}
    wanted, unwanted = rule.engines("prefer", "order"), rule.engines("exclude", "avoid")
    tried = [engine for engine in wanted if engine in measured]
    if rule.status not in STANDING:
        yield False, _note(rule, f"{rule.status}: {rule.fix or rule.evidence}")
    elif best in unwanted:
        yield False, _note(rule, f"{best} was measured here and is the best")
    elif wanted and not tried:
        yield False, _note(rule, f"{wanted[0]} was not measured here")
    elif tried and (best == tried[0] or ("order" not in rule.then and best in tried)):
        yield True, _note(rule, f"{best} was measured here and is named")
    elif tried:
        yield False, _note(rule, f"{tried[0]} was measured here and is not the best")


def _family(engine: str) -> str:
    return SAME_ENGINE.get(engine, engine)


def _note(rule: Rule, why: str) -> RuleNote:
    verbs = {"prefer": "prefer", "order": "order", "exclude": "leave out", "avoid": "avoid"}
    parts = [f"{verbs[key]} {', '.join(rule.engines(key))}" for key in rule.then]
    return RuleNote(
        rule=rule.id, says=f"if {rule.when}: {'; '.join(parts)}", status=rule.status, why=why
    )
