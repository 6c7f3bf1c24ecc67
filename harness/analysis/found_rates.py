"""What searches found: the highest rate that meets the SLO, as an interval, with who confirms it.

The interval is from the highest confirmed pass to the lowest confirmed fail (method.md 2.1.8): a
rate counts only if every run that tried it agrees. What fresh runs did not confirm is said so.
"""

from collections.abc import Mapping, Sequence

from harness.analysis.agreement import agreed, tried_rates
from harness.analysis.candidates import candidate_of
from harness.analysis.facts import setting
from harness.analysis.model import Candidate, FoundRate
from harness.types import RunInfo, SearchResult


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
    tried = tried_rates([search.probes, *again])
    low, high = agreed(tried)
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
        fresh_wanted=int(setting(info, "load.search.confirm_runs", len(fresh))),
        is_noisy=any(r.passes and (r.fails or r.rate_rps > lowest_fail) for r in tried),
        tried=tried,
        emulated=info.emulated,
    )
