"""The comparability contract: what must be equal before two cells may be ranked.

MUST: a difference forbids a verdict. REPORT: it is the subject, or worth saying beside one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.analysis.candidates import workload_of
from harness.analysis.facts import (
    fact,
    gpu_links,
    gpu_setting,
    machine_of,
    origin_sha256,
    setting,
    tokenizer_sha256,
    weights,
)
from harness.analysis.model import Cell
from harness.types import RunInfo

_TOKENS_TOLERANCE = 0.02  # realised lengths may differ by 2 %
_CHUNK_TOLERANCE = 0.05  # tokens a chunk may differ by 5 % before chunk gaps stop being alike
_SHOWN = 60
_SAME_MEANING = (1, 2, 3)  # versions of the store that only added columns


class Rule(StrEnum):
    """What a difference means."""

    MUST = "must match"
    REPORT = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One thing in which two cells differ, as text on either side."""

    name: str
    rule: Rule
    a: str
    b: str

    @property
    def text(self) -> str:
        """Such as `route: completions against chat`."""
        return f"{self.name}: {self.a} against {self.b}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    rule: Rule
    of: Callable[[RunInfo], Any]


def _of(path: str, default: Any = None) -> Callable[[RunInfo], Any]:
    return lambda info: setting(info, path, default)


def _meaning(info: RunInfo) -> int:
    """Which clock and formulas a run's figures have: versions 1 to 3 share them."""
    return 1 if info.schema_version in _SAME_MEANING else info.schema_version


def _is_forced(info: RunInfo) -> bool | None:
    """Whether the engine could be made to answer with a given length; the lengths decide."""
    return info.capabilities.forced_length if info.capabilities else None


_FIELDS = (
    _Field(name="emulated", rule=Rule.MUST, of=lambda info: info.emulated),
    _Field(name="schema version", rule=Rule.MUST, of=_meaning),
    _Field(name="CPU", rule=Rule.MUST, of=lambda info: machine_of(info).cpu_model),
    _Field(name="CPU cores", rule=Rule.MUST, of=lambda info: machine_of(info).cpu_cores),
    _Field(name="GPUs", rule=Rule.MUST, of=lambda info: ", ".join(machine_of(info).gpus) or None),
    _Field(name="GPU settings", rule=Rule.MUST, of=gpu_setting),
    _Field(name="GPU links", rule=Rule.MUST, of=gpu_links),
    _Field(name="model", rule=Rule.MUST, of=lambda info: origin_sha256(info) or info.model),
    _Field(name="weights", rule=Rule.MUST, of=weights),
    _Field(name="tokenizer file", rule=Rule.REPORT, of=tokenizer_sha256),
    _Field(name="route", rule=Rule.MUST, of=_of("engine.route")),
    _Field(name="prefix cache", rule=Rule.MUST, of=_of("engine.prefix_cache")),
    _Field(name="warm-up", rule=Rule.MUST, of=_of("warmup.mode")),
    _Field(name="launch", rule=Rule.REPORT, of=_of("launch.mode")),
    _Field(name="engine version", rule=Rule.REPORT, of=lambda info: info.identity.version),
    _Field(name="max_running", rule=Rule.REPORT, of=_of("engine.max_running")),
    _Field(name="max_model_len", rule=Rule.REPORT, of=_of("engine.max_model_len")),
    *(
        _Field(name=name, rule=Rule.REPORT, of=_of(f"engine.{name}"))
        for name in (
            *("tokens_per_step", "memory_fraction", "kv_tokens", "chunked_prefill"),
            "cuda_graphs",
        )
    ),
    _Field(name="length forced", rule=Rule.REPORT, of=_is_forced),
    _Field(name="speculation", rule=Rule.REPORT, of=_of("engine.speculation.method", "none")),
    _Field(name="tp", rule=Rule.REPORT, of=_of("engine.tp", 1)),
    _Field(name="pp", rule=Rule.REPORT, of=_of("engine.pp", 1)),
    _Field(name="image", rule=Rule.REPORT, of=lambda info: fact(info, "image.digest")),
    _Field(name="threads", rule=Rule.REPORT, of=_of("engine.threads")),
    _Field(name="price", rule=Rule.REPORT, of=_of("hardware.price.per_hour")),
)


def run_mismatches(a: RunInfo, b: RunInfo) -> tuple[Mismatch, ...]:
    """In what two runs differ, by their run.json alone; a value that both lack is no difference."""
    found = []
    for field in _FIELDS:
        left, right = field.of(a), field.of(b)
        if left != right:
            found.append(_mismatch(field.name, field.rule, left, right))
    return tuple(found)


def mismatches(
    a: Cell, b: Cell, a_runs: Sequence[RunInfo], b_runs: Sequence[RunInfo]
) -> tuple[Mismatch, ...]:
    """In what two cells differ: workload, plan, runs, and the lengths that were realised.

    `a_runs`, `b_runs`: the runs behind each. The plan agrees if any plan was played by both:
    blocks may each have their own. Where both say what made the level's own requests and due
    times, that decides: one may have played more of them than the other, or other levels beside.
    """
    found = []
    if a.workload.key != b.workload.key:
        found.append(_mismatch("workload", Rule.MUST, a.workload.label, b.workload.label))
    found += _plans(a, b, a_runs, b_runs)
    if a_runs and b_runs:
        found += run_mismatches(a_runs[0], b_runs[0])
    found += _lengths(a, b, is_prefix=bool(_level_plans(a, a_runs) & _level_plans(b, b_runs)))
    found += _unlike(a, b, "tokens_per_chunk", "tokens a chunk", _CHUNK_TOLERANCE, Rule.REPORT)
    return tuple(found)


def _lengths(a: Cell, b: Cell, *, is_prefix: bool) -> list[Mismatch]:
    """Realised lengths; of one plan played to different ends, against what was planned."""
    found = []
    for side in ("input", "output"):
        names = [f"{side}_plan_ratio", f"{side}_tokens_mean"]
        title = f"realised {side} tokens"
        is_known = all(_value(cell, names[0]) is not None for cell in (a, b))
        name = names[0] if is_prefix and is_known else names[1]
        title += " of planned" if name == names[0] else ""
        found += _unlike(a, b, name, title, _TOKENS_TOLERANCE, Rule.MUST)
    return found


def _plans(
    a: Cell, b: Cell, a_runs: Sequence[RunInfo], b_runs: Sequence[RunInfo]
) -> list[Mismatch]:
    left, right = _level_plans(a, a_runs), _level_plans(b, b_runs)
    if not (left and right):  # an older run on either side
        left, right = {r.plan_hash for r in a_runs}, {r.plan_hash for r in b_runs}
    if not (left and right) or left & right:
        return []
    return [_mismatch("plan", Rule.MUST, min(left)[:12], min(right)[:12])]


def _level_plans(cell: Cell, runs: Sequence[RunInfo]) -> set[str]:
    """The plans of the cell's level over its runs; empty unless each run says its own."""
    plans = [
        level.plan_sha256
        for run in runs
        for level in run.levels
        if workload_of(run, level).level == cell.workload.level
    ]
    return {plan for plan in plans if plan} if all(plans) else set()


def must_match(found: Sequence[Mismatch]) -> tuple[Mismatch, ...]:
    """Only those that forbid a verdict."""
    return tuple(one for one in found if one.rule is Rule.MUST)


def _unlike(
    a: Cell, b: Cell, metric: str, title: str, tolerance: float, rule: Rule
) -> list[Mismatch]:
    left, right = _value(a, metric), _value(b, metric)
    if left is None or right is None or abs(left - right) <= tolerance * max(left, right):
        return []
    return [_mismatch(title, rule, f"{left:.4g}", f"{right:.4g}")]


def _value(cell: Cell, metric: str) -> float | None:
    return cell.metrics[metric].value if metric in cell.metrics else None


def _mismatch(name: str, rule: Rule, a: Any, b: Any) -> Mismatch:
    return Mismatch(name=name, rule=rule, a=_text(a), b=_text(b))


def _text(value: Any) -> str:
    return "unknown" if value is None else str(value)[:_SHOWN]
