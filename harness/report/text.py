"""The answer in words and in one small table, for the page and the terminal alike.

Light on purpose: no pandas, matplotlib or jinja2.
"""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from harness.analysis.model import Cell, Summary
from harness.config import SloConf
from harness.report.answer import who_wins
from harness.report.columns import Column, column_of, interval_text, value_text
from harness.report.doubts import doubt_groups
from harness.report.found import found_lines, found_tables
from harness.report.names import workload_labels, workloads_of
from harness.types import Estimate, Severity, Verdict, VerdictKind

_TABLE_METRICS = ("ttft_p50_s", "ttft_p90_s", "tpot_p50_s", "output_tokens_per_s", "error_ratio")
_NOTHING = Estimate(value=None)


def verdict_lines(summary: Summary, slo: SloConf | None = None) -> list[str]:
    """Three plain sentences: who wins where, what is not decided, what limits trust.

    What searches found stands first; where there is nothing but searches, nothing else is said.
    """
    found = " ".join(found_lines(summary))
    if found and not summary.cells:
        return [found, _undecided(summary), _trust(summary)]
    answer = who_wins(summary, slo)
    return [f"{found} {answer}" if found else answer, _undecided(summary), _trust(summary)]


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
    needed = [v for v in open_ones if v.runs_needed is not None]
    if needed:
        nearest = min(needed, key=lambda v: v.runs_needed or 0)
        text += (
            f"; the nearest to an answer, {_some(summary, [nearest])}, takes about "
            f"{nearest.runs_needed} blocks instead of {nearest.blocks}: repeats="
            f"{nearest.runs_needed}"
        )
    elif open_ones[0].reason:
        text += f": {open_ones[0].reason}"
    return f"{text}. {alike[0].upper() + alike[1:]}." if alike else f"{text}."


def _some(summary: Summary, verdicts: Sequence[Verdict], most: int = 2) -> str:
    names = workload_labels(summary)
    all_names = dict.fromkeys(
        f"{column_of(v.metric).title} at {names[v.workload]}" for v in verdicts
    )
    shown = list(all_names)[:most]
    rest = len(verdicts) - len(shown)
    return ", ".join(shown) + (f", {rest} more" if rest > 0 else "")


def _trust(summary: Summary) -> str:
    parts = []
    if summary.is_emulated:
        parts.append("emulated engines were measured, which is no evidence about real ones")
    if summary.failed:
        parts.append(f"{len(summary.failed)} run(s) failed ({summary.failed[0].reason})")
    noisy = sum(found.is_noisy for found in summary.found)
    if noisy:
        parts.append(
            f"{noisy} of {len(summary.found)} searches met rates on which its runs do not agree: "
            "repeat it on a quieter machine"
        )
    weighty = [d for d in doubt_groups(summary) if d.severity is not Severity.NOTE]
    if weighty:
        more = f" (and {len(weighty) - 1} more kinds of doubt)" if len(weighty) > 1 else ""
        parts.append(f"{weighty[0].found[0][0]}: {weighty[0].advice}{more}")
    sizes = f"{len(summary.runs)} runs, {summary.n:,} measured requests"
    if not parts:
        return f"Nothing speaks against these figures ({sizes})."
    return f"What limits trust ({sizes}): {'; '.join(parts)}."


def comparison_table(summary: Summary) -> Table:
    """The main figures of each candidate at each workload, with 95 % intervals below them.

    Fits 80 columns, the width of a pipe: the load is a line of its own above its candidates.
    """
    table = Table(
        title=summary.title or None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("load\n  candidate", overflow="fold")
    columns = [column_of(metric) for metric in _TABLE_METRICS]
    for column in columns:
        table.add_column(_head(column), justify="right", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    for workload in workloads_of(summary):
        table.add_row(Text(workload.label, style="bold"))
        cells = [c for c in summary.cells if c.workload.key == workload.key]
        for cell in cells:
            figures = [_figure(cell, column.metric) for column in columns]
            name = Text(f"  {cell.candidate.label}")
            table.add_row(name, *figures, f"{cell.n:,}", end_section=cell is cells[-1])
    return table


def found_table(summary: Summary) -> Table:
    """Every rate that searches tried; fits 80 columns."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("search\n  rate, requests/s", overflow="fold")
    for head in ("outcome", "within\nthe SLO", "n"):
        table.add_column(head, justify="left" if head == "outcome" else "right")
    for search in found_tables(summary):
        table.add_row(Text(search.title, style="bold"))
        for row in search.rows:
            table.add_row(f"  {row.rate}", row.outcome, row.attainment, row.n)
    return table


def _head(column: Column) -> str:
    if column.title.endswith(column.unit):
        return column.title.replace(" ", "\n")
    return f"{column.title}\n{column.unit}"


def _figure(cell: Cell, metric: str) -> Text:
    estimate, column = cell.metrics.get(metric, _NOTHING), column_of(metric)
    text = Text(value_text(estimate, column).replace(", has", "\nhas"))
    interval = "" if metric == "error_ratio" else interval_text(estimate, column)
    return text.append(f"\n{interval}", style="dim") if interval else text
