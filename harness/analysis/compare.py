"""Verdicts: BETTER, WORSE, EQUIVALENT, INCONCLUSIVE, or NOT_COMPARABLE.

A difference is said only if the 95 % interval of the paired log-ratio excludes none, if it is
at least 2 %, and if it survives Holm's correction over everything that is compared at the
workload. EQUIVALENT needs the 90 % interval inside the practical margin (two one-sided tests).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from harness.analysis.contract import mismatches, must_match
from harness.analysis.contrast import Contrast, common_blocks, contrast
from harness.analysis.intervals import blocks_needed
from harness.analysis.metrics import METRICS, Better, Metric
from harness.analysis.model import Cell
from harness.analysis.stats import minimum_n
from harness.types import RunInfo, Severity, Verdict, VerdictKind
from harness.units import percent

_ALPHA = 0.05
_LEAST_RATIO = 0.02  # below 2 % no difference is called one
_GOOD_BLOCKS = 4  # "4 to 6 blocks for significance" (method: comparability, row 23)
COMPARED = tuple(metric for metric in METRICS if metric.margin_ratio is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    a: Cell
    b: Cell
    metric: Metric
    contrast: Contrast | None = None
    refusal: str = ""


def compare_cells(
    a: Cell, b: Cell, *, runs: Mapping[str, RunInfo], metrics: Sequence[Metric] = COMPARED
) -> tuple[Verdict, ...]:
    """Verdicts of A against B on each metric that both carry; `runs`: run id to its run.json."""
    return compare_all([a, b], runs=runs, metrics=metrics)


def compare_all(
    cells: Sequence[Cell],
    *,
    runs: Mapping[str, RunInfo],
    metrics: Sequence[Metric] = COMPARED,
) -> tuple[Verdict, ...]:
    """Verdicts of every pair of cells of one workload, one family for Holm's correction.

    Where a pair may not be compared there is one NOT_COMPARABLE per metric, with the reason.
    Metrics that neither side carries are left out.
    """
    cases = [
        case for a, b in combinations(cells, 2) for case in _cases(a, b, runs=runs, metrics=metrics)
    ]
    tested = [case for case in cases if case.contrast is not None]
    passed = holm([case.contrast.p_value for case in tested if case.contrast is not None])
    survives = {id(case): ok for case, ok in zip(tested, passed, strict=True)}
    return tuple(_verdict(case, survives.get(id(case), False)) for case in cases)


def holm(p_values: Sequence[float], alpha: float = _ALPHA) -> list[bool]:
    """Which hypotheses Holm's step-down procedure rejects at `alpha`, in the order given."""
    rejected = [False] * len(p_values)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    for step, i in enumerate(order):
        if p_values[i] > alpha / (len(p_values) - step):
            break
        rejected[i] = True
    return rejected


def _cases(
    a: Cell, b: Cell, *, runs: Mapping[str, RunInfo], metrics: Sequence[Metric]
) -> list[_Case]:
    refusal = _refusal(a, b, runs)
    cases = []
    for metric in metrics:
        figures = [value for cell in (a, b) for value in cell.per_run.get(metric.name, ())]
        if all(value is None for value in figures) and not _have_it_pooled(a, b, metric):
            continue
        found = None if refusal else contrast(a, b, metric.name)
        cases.append(_Case(a=a, b=b, metric=metric, contrast=found, refusal=refusal))
    return cases


def _have_it_pooled(a: Cell, b: Cell, metric: Metric) -> bool:
    figures = [cell.metrics.get(metric.name) for cell in (a, b)]
    return all(figure is not None and figure.value is not None for figure in figures)


def _refusal(a: Cell, b: Cell, runs: Mapping[str, RunInfo]) -> str:
    for cell in (a, b):
        invalid = [d for d in cell.doubts if d.severity is Severity.INVALID]
        if invalid:
            return f"{cell.candidate.label} is not valid: {invalid[0].what}"
    sides = [[runs[i] for i in cell.run_ids if i in runs] for cell in (a, b)]
    found = must_match(mismatches(a, b, *sides))
    return "; ".join(one.text for one in found)


def _verdict(case: _Case, survives: bool) -> Verdict:
    found = case.contrast
    if case.refusal:
        return _plain(case, VerdictKind.NOT_COMPARABLE, case.refusal)
    if found is None:
        return _plain(case, VerdictKind.INCONCLUSIVE, _why_too_few(case))
    kind, reason = _judge(found, case.metric, survives)
    low, high = found.interval(1 - _ALPHA)
    margin = math.log1p(case.metric.margin_ratio or 0.05)
    is_open = kind is VerdictKind.INCONCLUSIVE
    return Verdict(
        kind=kind,
        metric=case.metric.name,
        a=case.a.candidate.key,
        b=case.b.candidate.key,
        workload=case.a.workload.key,
        ratio=math.exp(found.theta),
        ci_low=math.exp(low),
        ci_high=math.exp(high),
        blocks=found.pairs,
        runs_needed=_runs_needed(found, margin) if is_open else None,
        reason=reason,
    )


def _judge(found: Contrast, metric: Metric, survives: bool) -> tuple[VerdictKind, str]:
    low, high = found.interval(1 - _ALPHA)
    inner_low, inner_high = found.interval(1 - 2 * _ALPHA)
    margin = metric.margin_ratio or 0.05
    unpaired = "" if found.is_paired else "; compared across sweeps, not within blocks"
    excludes_none = low > 0 or high < 0
    is_within = -math.log1p(margin) <= inner_low and inner_high <= math.log1p(margin)
    if excludes_none and survives and abs(found.theta) >= math.log1p(_LEAST_RATIO):
        is_a = (found.theta > 0) == (metric.better is Better.HIGHER)
        return (VerdictKind.BETTER if is_a else VerdictKind.WORSE), unpaired.removeprefix("; ")
    if is_within:
        return VerdictKind.EQUIVALENT, f"within {percent(margin)}{unpaired}"
    if excludes_none and not survives:
        reason = "a difference shows, but not beyond chance among all that is compared here"
    else:
        reason = f"the interval does not settle a difference of {percent(margin)}"
    return VerdictKind.INCONCLUSIVE, reason + unpaired


def _runs_needed(found: Contrast, margin: float) -> int | None:
    """More blocks than there are: a test that did not settle it may still have been lucky."""
    needed = blocks_needed(found.spread, margin)
    return None if needed is None else max(needed, found.pairs + 1)


def _plain(case: _Case, kind: VerdictKind, reason: str) -> Verdict:
    return Verdict(
        kind=kind,
        metric=case.metric.name,
        a=case.a.candidate.key,
        b=case.b.candidate.key,
        workload=case.a.workload.key,
        blocks=common_blocks(case.a, case.b, case.metric.name),
        reason=reason,
    )


def _why_too_few(case: _Case) -> str:
    metric = case.metric
    for cell in (case.a, case.b):
        values = cell.per_run.get(metric.name, ())
        if values and not any(values):
            return f"{cell.candidate.label} carries no {metric.title} in a single run" + _size(
                metric
            )
    blocks = common_blocks(case.a, case.b, metric.name)
    have = "one block" if blocks == 1 else f"{blocks} blocks"
    return f"{have} in common: an interval needs repeats={_GOOD_BLOCKS} or more"


def _size(metric: Metric) -> str:
    if metric.p is None or metric.p <= 0.5:  # noqa: PLR2004 a median needs no size
        return ""
    return f": it needs {minimum_n(metric.p)} requests a run"
