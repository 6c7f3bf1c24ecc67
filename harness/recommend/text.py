"""A decision for people: the verdict in at most three sentences, its evidence, and its tree."""

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from harness.recommend.model import Decision, Evidence, Fit, Flip, Pick, Status
from harness.recommend.objectives import GOOD_TOKENS, OUTPUT_TOKENS
from harness.units import estimate, estimate_with_interval, percent, seconds

FIT_STYLE = {Fit.MET: "green", Fit.MISSED: "red", Fit.UNKNOWN: "yellow"}


def decision_lines(decision: Decision) -> list[str]:
    """The verdict first, in at most three sentences, one an item; plain text, not wrapped."""
    if decision.status is Status.REFUSED or decision.best is None:
        lines = [decision.refusal or "There is no answer."]
        if decision.next_measurement is not None:
            following = decision.next_measurement
            lines.append(f"Measure next: {following.command} ({following.why}).")
        return lines
    lines = [_headline(decision, decision.best), *decision.reasons[:1]]
    if decision.runner_up is not None:
        lines.append(_second(decision.best, decision.runner_up))
    elif decision.next_measurement is not None:
        following = decision.next_measurement
        lines.append(f"Measure next: {following.command} ({following.why}).")
    return lines


def _headline(decision: Decision, best: Pick) -> str:
    question = decision.question
    kept = "no SLO was asked"
    if question.limits != "no limit":
        kept = f"keeps {question.limits} for {percent(question.attainment_ratio)} of requests"
    scenario = f" for {question.scenario}" if question.scenario else ""
    return f"Run {best.candidate}{scenario} at {best.level}: {pick_words(best)}; {kept}."


def pick_words(pick: Pick) -> str:
    """The value of the objective with its interval, as `61.2 tokens/s [60 ..., 62 ...]`."""
    words = estimate_with_interval(pick.value, pick.unit)
    return f"{pick.currency} {words}" if pick.currency else words


def _second(best: Pick, second: Pick) -> str:
    ours, theirs = best.value.value, second.value.value
    behind = ""
    if ours and theirs:
        behind = f", {percent(abs(theirs / ours - 1))} {'more' if theirs > ours else 'less'}"
    return f"Second is {second.candidate} at {second.level}: {pick_words(second)}{behind}."


def flip_words(flip: Flip) -> str:
    """One flip as a sentence without its full stop."""
    show = seconds if flip.variable.endswith("_s") else lambda value: f"{value:.4g}"
    change = f"{show(flip.now)} to {show(flip.flip_at)} ({flip.pct:+.0f} %)"
    return f"{flip.variable} {change}: {flip.then}"


def evidence_table(decision: Decision) -> Table:
    """Every row of evidence; a star marks what the answer rests on. Fits 80 columns."""
    title = "Evidence (* the answer rests on it)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("candidate\n  load", overflow="fold")
    for name in ("tier", "blocks", "n", "good\nat least", "tokens/s", "TTFT P50", "date"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in decision.evidence:
        table.add_row(*_cells(row), style=None if row.cited else "dim")
    return table


def _cells(row: Evidence) -> tuple[Text | str, ...]:
    share = row.attainment
    return (
        Text(f"{'*' if row.cited else ' '} {row.candidate}\n  {row.level}"),
        row.tier.value,
        str(len(set(row.blocks))),
        str(row.n),
        Text(f"{percent(share.value)}\n").append(percent(share.ci_low), style=FIT_STYLE[row.fit]),
        _figure(row, (GOOD_TOKENS, OUTPUT_TOKENS), ""),
        _figure(row, ("ttft_p50_s",), "s"),
        row.date[:10],
    )


def _figure(row: Evidence, names: tuple[str, ...], unit: str) -> str:
    for name in names:
        figure = row.metrics.get(name)
        if figure is not None and figure.value is not None:
            return estimate(figure, unit)
    return "-"


def path_tree(decision: Decision) -> Tree:
    """The decision tree as it was walked: each test, the branch taken, the facts, the others."""
    tree = Tree(f"[bold]{escape(decision.question.scenario or 'question')}[/]")
    here = tree
    for step in decision.path:
        here = here.add(f"[bold]{step.test}[/]: {escape(step.question)} [cyan]{step.answer}[/]")
        for fact in step.facts:
            here.add(escape(fact))
        others = [branch for branch in step.branches if branch != step.answer]
        here.add(f"[dim]not taken: {', '.join(others)}[/]")
    here.add(f"[bold]{decision.status.value}[/]: {escape(_end(decision))}")
    return tree


def _end(decision: Decision) -> str:
    if decision.best is None:
        return decision.refusal or "no answer"
    return f"{decision.best.candidate} at {decision.best.level}"
