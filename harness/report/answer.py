"""The first sentence of every answer: who wins, at which load, and by how much."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from harness.analysis.model import Cell, Summary
from harness.config import SloConf
from harness.report.columns import column_of, value_text
from harness.report.names import candidate_labels, candidates_of, workload_labels
from harness.report.winners import Win, decided, headline, leaders
from harness.types import Estimate, VerdictKind

_NOTHING = Estimate(value=None)
_INTERVAL = "95 % interval "
_MOST = 2  # winners told in full; a sentence with more is not read
_MOST_NAMES = 3


def who_wins(summary: Summary, slo: SloConf | None) -> str:
    """Who is better at which load and by how much; with an SLO, who keeps it up to where."""
    measured = {c.candidate.key for c in summary.cells}
    if not measured:
        return f"No run gave figures: {len(summary.failed)} failed; the reasons stand below."
    if len(measured) == 1:
        text = _alone(summary.cells[-1])
    elif not leaders(summary):
        text = _no_winner(summary)
    else:
        text = f"{_winners(summary)}."
    return text + _slo_clause(summary, slo)


def _alone(cell: Cell) -> str:
    rate, ttft = column_of("output_tokens_per_s"), column_of("ttft_p50_s")
    x = cell.metrics.get(rate.metric, _NOTHING)
    y = cell.metrics.get(ttft.metric, _NOTHING)
    if x.value is None:
        return (
            f"{cell.candidate.label} gave no figures at {cell.workload.label}: {cell.n_failed} of "
            f"{cell.n} requests failed."
        )
    return (
        f"Only {cell.candidate.label} gave figures, so nothing is compared; at "
        f"{cell.workload.label} it gives {value_text(x, rate)} output tokens/s with a median TTFT "
        f"of {value_text(y, ttft)} ms."
    )


def _no_winner(summary: Summary) -> str:
    kinds = Counter(v.kind for v in summary.verdicts)
    total = sum(kinds.values())
    refused = kinds[VerdictKind.NOT_COMPARABLE]
    if total and refused == total:
        reason = next((v.reason for v in summary.verdicts if v.reason), "settings differ")
        return f"Nothing may be compared: {reason}."
    same = kinds[VerdictKind.EQUIVALENT]
    if same and same == total - refused:
        return f"No difference that matters: all {same} comparisons are equivalent."
    return f"No winner: of {total} comparisons {same} are equivalent and none shows a difference."


def _winners(summary: Summary) -> str:
    names, lead = workload_labels(summary), leaders(summary)
    winners = list(dict.fromkeys(w for w in lead.values() if w is not None))
    clauses = [_win_clause(summary, winner) for winner in winners[:_MOST]]
    if len(winners) > _MOST:
        clauses.append(f"{len(winners) - _MOST} more candidates win at other loads")
    mixed = [key for key, leader in lead.items() if leader is None]
    if mixed:
        sides = _sides(summary, mixed[-1])
        clauses.append(f"at {names[mixed[-1]]} it is a trade: {sides}{_also(mixed[:-1], names)}")
    first, said, rest = "; ".join(clauses).partition(_INTERVAL)
    text = first + said + rest.replace(_INTERVAL, "")  # said once is enough
    return text if winners else text[0].upper() + text[1:]


def _win_clause(summary: Summary, winner: str) -> str:
    names, labels = workload_labels(summary), _labels(summary)
    places = [key for key, leader in leaders(summary).items() if leader == winner]
    wins = [w for w in decided(summary.verdicts) if w.winner == winner]
    here = [w for w in wins if w.workload == places[-1]]
    rival = labels[headline(here)[0].loser]
    clause = f"{labels[winner]} is better at {names[places[-1]]}: {_facts(here)}, against {rival}"
    return clause + _also(places[:-1], names)


def _sides(summary: Summary, workload: str) -> str:
    """What speaks for each of the two candidates that win most here."""
    labels = _labels(summary)
    here = [w for w in decided(summary.verdicts) if w.workload == workload]
    counted = Counter(w.winner for w in here).most_common()
    sides = [
        f"{labels[winner]} has {_facts([w for w in here if w.winner == winner])}"
        for winner, _ in counted[:_MOST]
    ]
    return _listed(sides, len(counted))


def _facts(wins: Sequence[Win]) -> str:
    return " and ".join(win.text() for win in headline(wins))


def _also(places: Sequence[str], names: Mapping[str, str]) -> str:
    shown = _listed([names[place] for place in places[:_MOST_NAMES]], len(places))
    return f"; likewise at {shown}" if places else ""


def _listed(names: Sequence[str], total: int) -> str:
    rest = total - len(names)
    return ", ".join(names) + (f" and {rest} more" if rest > 0 else "")


def _labels(summary: Summary) -> Mapping[str, str]:
    return defaultdict(lambda: "another candidate", candidate_labels(summary))


def _slo_clause(summary: Summary, slo: SloConf | None) -> str:
    if slo is None or slo.name == "none":
        return ""
    held: dict[str, list[str]] = {}
    for candidate in candidates_of(summary):
        cells = [c for c in summary.cells if c.candidate.key == candidate.key]
        kept = [c.workload.level for c in cells if keeps_slo(c, slo) is True]
        where = f"up to {kept[-1]}" if kept else "at no level for certain"
        held.setdefault(where, []).append(candidate.label)
    share = slo.attainment_ratio * 100
    by = [f"{_listed(who[:_MOST_NAMES], len(who))} {where}" for where, who in held.items()]
    return f" The SLO {slo.name} is met for {share:g} % of requests by {', by '.join(by)}."


def keeps_slo(cell: Cell, slo: SloConf) -> bool | None:
    """Whether enough requests were good, judged on the interval; None: it straddles the target."""
    share = cell.metrics.get("attainment_ratio", _NOTHING)
    if share.value is None or share.ci_low is None or share.ci_high is None:
        return None
    if share.ci_low >= slo.attainment_ratio:
        return True
    return False if share.ci_high < slo.attainment_ratio else None
