"""The answer in words and in one small table, for the page and the terminal alike.

Light on purpose: no pandas, matplotlib or jinja2.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from rich.table import Table

from harness.analysis.model import Cell, Summary
from harness.config import SloConf
from harness.report.columns import Column, column_of, interval_text, value_text
from harness.report.doubts import doubt_groups
from harness.report.names import candidate_labels, workload_labels, workloads_of
from harness.report.winners import Win, decided, headline, leaders
from harness.types import Estimate, Severity, Verdict, VerdictKind

_TABLE_METRICS = ("ttft_p50_s", "ttft_p90_s", "tpot_p50_s", "output_tokens_per_s", "error_ratio")
_NOTHING = Estimate(value=None)


def verdict_lines(summary: Summary, slo: SloConf | None = None) -> list[str]:
    """Three plain sentences: who wins where, what is not decided, what limits trust."""
    return [_who_wins(summary, slo), _undecided(summary), _trust(summary)]


def _who_wins(summary: Summary, slo: SloConf | None) -> str:
    measured = {c.candidate.key for c in summary.cells}
    if not measured:
        return f"No run gave figures: {len(summary.failed)} failed; the reasons stand below."
    if len(measured) == 1:
        text = _alone(summary.cells[-1])
    elif not leaders(summary):
        text = _no_winner(summary)
    else:
        text = _winners(summary)
    held = _slo_clause(summary, slo)
    return f"{text} {held}".strip()


def _alone(cell: Cell) -> str:
    rate, ttft = column_of("output_tokens_per_s"), column_of("ttft_p50_s")
    x = cell.metrics.get(rate.metric, _NOTHING)
    y = cell.metrics.get(ttft.metric, _NOTHING)
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
    wins, names, labels = decided(summary.verdicts), workload_labels(summary), _labels(summary)
    lead = leaders(summary)
    clauses = []
    for winner in dict.fromkeys(w for w in lead.values() if w is not None):
        places = [key for key, leader in lead.items() if leader == winner]
        here = [w for w in wins if w.workload == places[-1] and w.winner == winner]
        rival = labels[headline(here)[0].loser]
        clause = f"{labels[winner]} is better at {names[places[-1]]}: {_facts(here)}"
        clauses.append(f"{clause}, against {rival}{_also(places[:-1], names)}")
    mixed = [key for key, leader in lead.items() if leader is None]
    if mixed:
        here = [w for w in wins if w.workload == mixed[-1]]
        sides = [
            f"{labels[winner]} has {_facts([w for w in here if w.winner == winner])}"
            for winner in dict.fromkeys(w.winner for w in here)
        ]
        trade = f"at {names[mixed[-1]]} it is a trade: {', '.join(sides)}"
        clauses.append(trade + _also(mixed[:-1], names))
    first, said, rest = "; ".join(clauses).partition("95 % interval ")
    text = first + said + rest.replace("95 % interval ", "")  # said once is enough
    return text[0].upper() + text[1:] + "." if mixed and len(clauses) == 1 else text + "."


def _facts(wins: Sequence[Win]) -> str:
    return " and ".join(win.text() for win in headline(wins))


def _also(places: Sequence[str], names: Mapping[str, str]) -> str:
    return f"; likewise at {', '.join(names[place] for place in places)}" if places else ""


def _labels(summary: Summary) -> Mapping[str, str]:
    return defaultdict(lambda: "another candidate", candidate_labels(summary))


def _slo_clause(summary: Summary, slo: SloConf | None) -> str:
    if slo is None or slo.name == "none":
        return ""
    held = []
    for key, label in candidate_labels(summary).items():
        cells = [c for c in summary.cells if c.candidate.key == key]
        kept = [c.workload.level for c in cells if keeps_slo(c, slo) is True]
        if cells:
            held.append(f"{label} {'up to ' + kept[-1] if kept else 'at no level for certain'}")
    share = slo.attainment_ratio * 100
    return f"The SLO {slo.name} is met for {share:g} % of requests by {', by '.join(held)}."


def keeps_slo(cell: Cell, slo: SloConf) -> bool | None:
    """Whether enough requests were good, judged on the interval; None: it straddles the target."""
    share = cell.metrics.get("attainment_ratio", _NOTHING)
    if share.value is None or share.ci_low is None or share.ci_high is None:
        return None
    if share.ci_low >= slo.attainment_ratio:
        return True
    return False if share.ci_high < slo.attainment_ratio else None


def _undecided(summary: Summary) -> str:
    open_ones = [v for v in summary.verdicts if v.kind is VerdictKind.INCONCLUSIVE]
    same = sum(v.kind is VerdictKind.EQUIVALENT for v in summary.verdicts)
    total = len(summary.verdicts)
    if not total:
        return "No comparison was made: it takes two candidates that ran in the same block."
    alike = f"{same} of {total} comparisons are equivalent within the margin" if same else ""
    if not open_ones:
        return f"{alike}; none is left open." if alike else f"All {total} comparisons are decided."
    text = f"{len(open_ones)} of {total} comparisons are inconclusive ({_some(summary, open_ones)})"
    needed = [v.runs_needed for v in open_ones if v.runs_needed is not None]
    blocks = max(v.blocks for v in open_ones)
    if needed:
        text += f"; about {max(needed)} blocks instead of {blocks} would settle them"
        text += f": repeats={max(needed)}"
    return f"{text}. {alike[0].upper() + alike[1:]}." if alike else f"{text}."


def _some(summary: Summary, verdicts: Sequence[Verdict], most: int = 2) -> str:
    names = workload_labels(summary)
    shown = [f"{column_of(v.metric).title} at {names[v.workload]}" for v in verdicts[:most]]
    rest = len(verdicts) - len(shown)
    return ", ".join(shown) + (f", {rest} more" if rest > 0 else "")


def _trust(summary: Summary) -> str:
    parts = []
    if any(cell.emulated for cell in summary.cells):
        parts.append("emulated engines were measured, which is no evidence about real ones")
    if summary.failed:
        parts.append(f"{len(summary.failed)} run(s) failed ({summary.failed[0].reason})")
    weighty = [d for d in doubt_groups(summary) if d.severity is not Severity.NOTE]
    if weighty:
        more = f" (and {len(weighty) - 1} more kinds of doubt)" if len(weighty) > 1 else ""
        parts.append(f"{weighty[0].found[0][0]}: {weighty[0].advice}{more}")
    sizes = f"{len(summary.runs)} runs, {sum(c.n for c in summary.cells):,} measured requests"
    if not parts:
        return f"Nothing speaks against these figures ({sizes})."
    return f"What limits trust ({sizes}): {'; '.join(parts)}."


def comparison_table(summary: Summary) -> Table:
    """The main figures of each candidate at each workload, with intervals, 100 columns wide."""
    table = Table(title=summary.title or None, title_justify="left", header_style="bold")
    table.add_column("load", no_wrap=True)
    table.add_column("candidate", overflow="fold")
    columns = [column_of(metric) for metric in _TABLE_METRICS]
    for column in columns:
        table.add_column(_head(column), justify="right")
    table.add_column("n", justify="right")
    for workload in workloads_of(summary):
        cells = [c for c in summary.cells if c.workload.key == workload.key]
        for position, cell in enumerate(cells):
            figures = [_figure(cell, column.metric) for column in columns]
            place = workload.label if position == 0 else ""
            is_last = position == len(cells) - 1
            table.add_row(place, cell.candidate.label, *figures, f"{cell.n:,}", end_section=is_last)
    return table


def _head(column: Column) -> str:
    return column.title if column.title.endswith(column.unit) else f"{column.title}\n{column.unit}"


def _figure(cell: Cell, metric: str) -> str:
    estimate, column = cell.metrics.get(metric, _NOTHING), column_of(metric)
    interval = interval_text(estimate, column)
    return value_text(estimate, column) + (f"\n{interval}" if interval else "")
