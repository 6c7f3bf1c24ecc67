"""On which rates do a search and the fresh runs that try its answer again agree?

A rate counts as passed if it passed in every run that tried it, and as failed if it failed in
every one; what runs do not agree on is neither (method.md 2.1.8).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.types import Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRate:
    """One rate over all runs that tried it: how often it passed, and its requests."""

    rate_rps: float
    passes: int
    fails: int
    good: int
    n: int

    @property
    def attainment_ratio(self) -> float | None:
        """Share of good requests; None if none counted."""
        return self.good / self.n if self.n else None


def tried_rates(runs: Sequence[Sequence[Probe]]) -> tuple[TriedRate, ...]:
    """All probes by rate, ascending. `runs`: the probes of each run, the search's first."""
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


def agreed(tried: Sequence[TriedRate]) -> tuple[TriedRate | None, TriedRate | None]:
    """The highest rate that all passed, and the lowest above it that all failed."""
    passing = [rate for rate in tried if not rate.fails]
    low = passing[-1] if passing else None
    failing = [r for r in tried if not r.passes and (low is None or r.rate_rps > low.rate_rps)]
    return low, (failing[0] if failing else None)
