"""What would change the answer: for each input the smallest change that does, nearest first."""

from collections.abc import Iterator

from harness.recommend.case import Case, Contender
from harness.recommend.model import Fit, Flip

SHOWN = 3


def flips(case: Case) -> tuple[Flip, ...]:
    """The three nearest changes that take the answer from the best; none without a best."""
    if case.best is None or not case.picks:
        return ()
    best = case.contenders[case.best]
    found = [*_performance(case), *_load(best)]
    if case.asked.has_limits:
        found += [*_attainment(case, best), *_limits(case, best)]
    return tuple(sorted(found, key=lambda flip: abs(flip.pct))[:SHOWN])


def _pct(now: float, flip_at: float) -> float:
    return (flip_at / now - 1) * 100


def _performance(case: Case) -> Iterator[Flip]:
    """How much better the second would have to be; 5 % errors of a run are easily that big."""
    if case.ranking is None or case.best is None:
        return
    second = next(i for i in case.ranking.order if i != case.best)
    ours, theirs = case.picks[case.best], case.picks[second]
    now, flip_at = theirs.value.value, ours.value.value
    if now and flip_at:
        yield Flip(
            variable=f"{theirs.metric} of {theirs.candidate}",
            now=now,
            flip_at=flip_at,
            pct=_pct(now, flip_at),
            then=f"{theirs.candidate} is as good",
        )


def _load(best: Contender) -> Iterator[Flip]:
    """The next higher load measured, if the best is not shown to carry it."""
    above = best.above
    if above is None or above.fit is Fit.MET or best.scored.load <= 0:
        return
    unit = "users" if best.cell.workload.closed else "requests/s"
    verb = "misses" if above.fit is Fit.MISSED else "is not known to keep"
    yield Flip(
        variable=f"load in {unit}",
        now=best.scored.load,
        flip_at=above.load,
        pct=_pct(best.scored.load, above.load),
        then=f"{best.label} {verb} the SLO",
        is_bound=True,
    )


def _attainment(case: Case, best: Contender) -> Iterator[Flip]:
    """A stricter share of good requests than the sample shows."""
    low = best.scored.attainment.ci_low
    now = case.asked.slo.attainment_ratio
    if low is not None and now <= low < 1:
        yield Flip(
            variable="slo.attainment_ratio",
            now=now,
            flip_at=low,
            pct=_pct(now, low),
            then=f"{best.label} is no longer shown to keep the SLO",
        )


def _limits(case: Case, best: Contender) -> Iterator[Flip]:
    """A limit as tight as the best's own percentile at the ratio asked, as P90 for 90 %."""
    slo = case.asked.slo
    percentile = f"{slo.attainment_ratio * 100:g}"
    for key, limit in (("ttft", slo.ttft_s), ("tpot", slo.tpot_s), ("e2e", slo.e2e_s)):
        figure = best.cell.metrics.get(f"{key}_p{percentile}_s")
        if limit is None or figure is None or not figure.value or figure.value > limit:
            continue
        yield Flip(
            variable=f"slo.{key}_s",
            now=limit,
            flip_at=figure.value,
            pct=_pct(limit, figure.value),
            then=f"{best.label} misses the SLO",
            is_bound=True,
        )
