"""What searches found: the highest rate that meets the SLO, as an interval, with who confirms it.

The interval is from the highest confirmed pass to the lowest confirmed fail (method.md 2.1.8): a
rate counts only if every run that tried it agrees. What fresh runs did not confirm is said so.
"""

from collections.abc import Mapping, Sequence

from harness.analysis.candidates import candidate_of
from harness.analysis.model import Candidate, FoundRate, TriedRate
from harness.types import Probe, RunInfo, SearchResult


def found_rates(
    infos: Sequence[RunInfo], labelled: Mapping[str, Candidate]
) -> tuple[FoundRate, ...]:
    """One for each search among the runs, in their order. `labelled`: candidates by key."""
    fresh: dict[str, list[RunInfo]] = {}
    for info in infos:
        if info.search is not None and info.search.confirms:
            fresh.setdefault(info.search.confirms, []).append(info)
    return tuple(
        _found(info, info.search, fresh.get(info.run_id, []), labelled[candidate_of(info).key])
        for info in infos
        if info.search is not None and not info.search.confirms and info.search.probes
    )


def _found(
    info: RunInfo, search: SearchResult, fresh: Sequence[RunInfo], candidate: Candidate
) -> FoundRate:
    again = [one.search.probes for one in fresh if one.search is not None]
    tried = _tried([search.probes, *again])
    passing = [rate for rate in tried if not rate.fails]
    if fresh:  # a rate that no fresh run has tried was passed on the way, and is not the answer
        passing = [rate for rate in passing if rate.passes > 1] or passing
    low = passing[-1] if passing else None
    failing = [r for r in tried if not r.passes and (low is None or r.rate_rps > low.rate_rps)]
    high = failing[0] if failing else None
    lowest_fail = min((r.rate_rps for r in tried if r.fails), default=float("inf"))
    return FoundRate(
        candidate=candidate,
        scenario=str(info.config.get("scenario", {}).get("name", "")),
        slo=search.slo,
        attainment_ratio=search.attainment_ratio,
        run_ids=(info.run_id, *(one.run_id for one in fresh)),
        block=info.block,
        low_rps=low.rate_rps if low else None,
        high_rps=high.rate_rps if high else None,
        low_confirmed=low.passes - 1 if low else 0,
        high_confirmed=high.fails - 1 if high else 0,
        fresh_runs=len(fresh),
        is_noisy=any(r.passes and (r.fails or r.rate_rps > lowest_fail) for r in tried),
        tried=tried,
        emulated=info.emulated,
    )


def _tried(runs: Sequence[Sequence[Probe]]) -> tuple[TriedRate, ...]:
    """All probes by rate, ascending."""
    probes = [probe for run in runs for probe in run]
    return tuple(
        TriedRate(
            rate_rps=rate,
            passes=sum(p.has_passed for p in probes if p.rate_rps == rate),
            fails=sum(not p.has_passed for p in probes if p.rate_rps == rate),
            good=sum(p.good for p in probes if p.rate_rps == rate),
            n=sum(p.n for p in probes if p.rate_rps == rate),
        )
        for rate in sorted({probe.rate_rps for probe in probes})
    )
