"""Who wins at which load: verdicts turned so that the winner stands first."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.model import Summary
from harness.report.columns import column_of
from harness.report.names import workloads_of
from harness.types import Verdict, VerdictKind
from harness.units import number

# Named first in a sentence, if decided: one on what a user feels, one on what a server gives.
_LATENCY = ("ttft_p90_s", "ttft_p50_s", "tpot_p50_s", "e2e_p90_s", "e2e_p50_s")
_RATE = ("goodput_rps", "output_tokens_per_s", "requests_per_s")
_ROUND_FROM = 99.5  # here two digits would become an exponent
_PERCENT_SPAN = (0.5, 2.0)  # outside it "x times" reads better than a percentage


@dataclass(frozen=True, slots=True, kw_only=True)
class Win:
    """One decided comparison: `ratio` is winner over loser, with its 95 % interval."""

    winner: str
    loser: str
    workload: str
    metric: str
    ratio: float
    ci_low: float
    ci_high: float

    def text(self) -> str:
        """Such as `TTFT P90 38 % lower (95 % interval 30 % to 45 %)`."""
        name = column_of(self.metric).title
        low, high = _PERCENT_SPAN
        if low <= self.ratio <= high:
            word = "higher" if self.ratio >= 1 else "lower"
            sign = 1 if self.ratio >= 1 else -1
            pair = sorted(sign * (end - 1) * 100 for end in (self.ci_low, self.ci_high))
            amount = f"{_brief(abs(self.ratio - 1) * 100)} % {word}"
            return f"{name} {amount} (95 % interval {_brief(pair[0])} % to {_brief(pair[1])} %)"
        word, value, ends = "as high", self.ratio, (self.ci_low, self.ci_high)
        if self.ratio < 1:
            word, value, ends = "lower", 1 / self.ratio, (1 / self.ci_high, 1 / self.ci_low)
        interval = f"{_brief(ends[0])} to {_brief(ends[1])}"
        return f"{name} {_brief(value)} times {word} (95 % interval {interval})"


def _brief(value: float) -> str:
    """Two significant digits: a sentence is read, a table is looked up."""
    return number(value) if abs(value) >= _ROUND_FROM else f"{value:.2g}"


def decided(verdicts: Sequence[Verdict]) -> list[Win]:
    """Every BETTER or WORSE as a win of the better one; others are left out."""
    wins = []
    for v in verdicts:
        if v.ratio is None or v.ci_low is None or v.ci_high is None or min(v.ci_low, v.ratio) <= 0:
            continue
        if v.kind is VerdictKind.BETTER:
            wins.append(_win(v, v.a, v.b, v.ratio, v.ci_low, v.ci_high))
        elif v.kind is VerdictKind.WORSE:
            wins.append(_win(v, v.b, v.a, 1 / v.ratio, 1 / v.ci_high, 1 / v.ci_low))
    return wins


def _win(v: Verdict, winner: str, loser: str, ratio: float, low: float, high: float) -> Win:
    return Win(
        winner=winner,
        loser=loser,
        workload=v.workload,
        metric=v.metric,
        ratio=ratio,
        ci_low=low,
        ci_high=high,
    )


def leaders(summary: Summary) -> dict[str, str | None]:
    """For each workload with a decided comparison: who wins some and loses none, else None."""
    by_workload: dict[str, list[Win]] = defaultdict(list)
    for win in decided(summary.verdicts):
        by_workload[win.workload].append(win)
    answer: dict[str, str | None] = {}
    for workload in workloads_of(summary):
        wins = by_workload.get(workload.key, [])
        losers = {w.loser for w in wins}
        unbeaten = {w.winner for w in wins} - losers
        if wins:
            answer[workload.key] = unbeaten.pop() if len(unbeaten) == 1 else None
    return answer


def headline(wins: Sequence[Win]) -> list[Win]:
    """At most two wins that tell the most: one on latency, one on rate, each the narrowest.

    Narrowest: against the closest rival, so that the sentence does not brag.
    """
    chosen = []
    for group in (_LATENCY, _RATE):
        for metric in group:
            mine = [w for w in wins if w.metric == metric]
            if mine:
                chosen.append(min(mine, key=lambda w: abs(w.ratio - 1)))
                break
    return chosen or list(wins[:1])
