"""Doubts of a cell: those of its runs put together, and those that only several runs show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.types import Doubt, Estimate, Outcome, RunInfo, Severity
from harness.units import percent

_WEIGHT = {Severity.NOTE: 0, Severity.WARN: 1, Severity.INVALID: 2}
_UNSTABLE = 0.05  # spread between runs above which the host is not steady (method: verdicts)
_LEAST_RUNS = 3
_OF_RUNS = "few_samples"  # said once for the cell, whose runs add up


def is_invalid(doubts: Sequence[Doubt]) -> bool:
    """Whether any doubt forbids the use."""
    return any(doubt.severity is Severity.INVALID for doubt in doubts)


def run_level_doubts(info: RunInfo, computed: Sequence[Doubt]) -> list[Doubt]:
    """A run's stored doubts and those computed now, each (code, where) once.

    A run that was stored as invalid stays so, whatever today's checks say.
    """
    found = {(one.code, one.where): one for one in (*computed, *info.doubts)}
    if info.outcome is Outcome.INVALID and not is_invalid(list(found.values())):
        reason = info.diagnosis or "it was judged so when it was measured"
        found["invalid_run", ""] = Doubt(
            code="invalid_run",
            what=f"the run is not valid: {reason}",
            advice="measure it again",
            severity=Severity.INVALID,
        )
    return list(found.values())


def cell_doubts(
    used: Mapping[str, Sequence[Doubt]],
    *,
    left_out: Mapping[str, Sequence[Doubt]],
    metrics: Mapping[str, Estimate],
    rates: Sequence[float | None],
) -> tuple[Doubt, ...]:
    """Doubts of a cell. `used`, `left_out`: run id to its doubts; `rates`: output of each run."""
    found = list(_merged(used))
    if left_out:
        why = next(d.what for ds in left_out.values() for d in ds if is_invalid([d]))
        found.append(
            Doubt(
                code="invalid_runs_left_out",
                what=f"{len(left_out)} of {len(left_out) + len(used)} runs are not valid and left "
                f"out ({why})",
                advice="measure these blocks again with rerun=true",
                where=", ".join(left_out),
            )
        )
    found += _few(metrics)
    found += _spread(rates)
    return tuple(sorted(found, key=lambda doubt: -_WEIGHT[doubt.severity]))


def _merged(used: Mapping[str, Sequence[Doubt]]) -> Iterator[Doubt]:
    by_code: dict[str, list[tuple[str, Doubt]]] = {}
    for run_id, doubts in used.items():
        for doubt in doubts:
            if doubt.code != _OF_RUNS:
                by_code.setdefault(doubt.code, []).append((run_id, doubt))
    for pairs in by_code.values():
        worst = max((doubt for _, doubt in pairs), key=lambda doubt: _WEIGHT[doubt.severity])
        runs = list(dict.fromkeys(run_id for run_id, _ in pairs))
        where = "all runs" if len(runs) == len(used) else ", ".join(runs)
        yield replace(worst, where=where)


def _few(metrics: Mapping[str, Estimate]) -> Iterator[Doubt]:
    p99 = metrics["ttft_p99_s"]
    if p99.value is None and p99.n and p99.needed:
        yield Doubt(
            code=_OF_RUNS,
            what=f"P99 needs {p99.needed} requests, has {p99.n}",
            advice="raise load.requests or repeats for a P99; else read the P50 and P90",
            severity=Severity.NOTE,
        )


def _spread(rates: Sequence[float | None]) -> Iterator[Doubt]:
    known = np.asarray([rate for rate in rates if rate], dtype=np.float64)
    if len(rates) == 1:
        yield Doubt(
            code="one_run",
            what="one run only, so the spread between server starts is not known",
            advice="repeat with repeats=4 or more",
            severity=Severity.NOTE,
        )
    if known.size >= _LEAST_RUNS:
        spread = float(known.std(ddof=1) / known.mean())
        if spread > _UNSTABLE:
            yield Doubt(
                code="unstable_host",
                what=f"output differs by {percent(spread)} (standard deviation) between runs",
                advice="close other programs, and measure more blocks: repeats=6",
            )
