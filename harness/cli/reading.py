"""`report`, `compare` and `recommend`: everything that reads stored runs and measures nothing."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console

from harness.analysis.arms import compare_summaries
from harness.analysis.cells import summarise
from harness.analysis.model import Summary
from harness.cli.slo import load_slo
from harness.config import SloConf
from harness.engine.facts import hardware_label, machine_facts
from harness.errors import ConfigError, NoAnswerError
from harness.paths import reference_dir
from harness.recommend.decide import recommend
from harness.recommend.model import Decision, Status
from harness.recommend.text import decision_lines, evidence_table, path_tree
from harness.report.measures import measure_lines
from harness.report.text import comparison_table, found_table, verdict_lines
from harness.store import StoredRun, open_runs
from harness.types import VerdictKind


def open_store(store: Path | None) -> Path:
    """The folder to read; the reference runs if none is given."""
    if store is not None:
        return store
    reference = reference_dir()
    if not reference.is_dir():
        raise ConfigError("no folder given and no reference runs here; say which: results/NAME")
    return reference


def read_summary(
    folders: Sequence[Path], slo: SloConf | None
) -> tuple[Summary, tuple[StoredRun, ...]]:
    """Summary and runs of one or several folders; unreadable runs become doubts."""
    opened = [
        open_runs(folder, strict=len(list(folder.glob("run.json"))) > 0) for folder in folders
    ]
    runs = tuple(run for part in opened for run in part.runs)
    doubts = tuple(doubt for part in opened for doubt in part.doubts)
    if not runs:
        raise ConfigError("; ".join(doubt.what for doubt in doubts))
    return summarise(runs, slo=slo, doubts=doubts), runs


def print_verdict(console: Console, summary: Summary, slo: SloConf | None) -> None:
    """Three sentences, what the scenario is about, then the tables."""
    for line in (*verdict_lines(summary, slo), *measure_lines(summary)):
        console.print(line, highlight=False)
    if summary.found:
        console.print(found_table(summary))
    if summary.cells or not summary.found:
        console.print(comparison_table(summary))


def write_html(store: Path | None, out: Path | None, slo_name: str) -> int:
    """`bakeoff report`: the page, and the verdict on the terminal."""
    from harness.report.write import write_report

    folder, slo = open_store(store), load_slo(slo_name)
    summary, runs = read_summary([folder], slo)
    path = out or Path("reports") / f"{folder.resolve().name}.html"
    write_report(summary, runs, path, slo=slo)
    console = Console(markup=False)
    print_verdict(console, summary, slo)
    console.print(f"report: {path}", highlight=False, soft_wrap=True)
    return 0


def compare_two(a: Path, b: Path, *, as_json: bool) -> int:
    """`bakeoff compare A B`; exit 7 if nothing in the two may be compared."""
    parts = [read_summary([folder], None)[0] for folder in (a, b)]
    summary = compare_summaries(*parts, names=_arm_names(a, b))
    if as_json:
        print(msgspec.json.encode(summary.verdicts).decode())
    else:
        print_verdict(Console(markup=False), summary, None)
    kinds = {verdict.kind for verdict in summary.verdicts}
    if not kinds:
        raise NoAnswerError(
            f"{a} and {b}: no two candidates share a workload, so nothing can be compared; measure "
            "both with the same scenario, load and seed"
        )
    if kinds == {VerdictKind.NOT_COMPARABLE}:
        reason = next(verdict.reason for verdict in summary.verdicts if verdict.reason)
        raise NoAnswerError(f"{a} and {b}: not comparable: {reason}")
    return 0


def _arm_names(a: Path, b: Path) -> tuple[str, str]:
    """What tells the two folders apart: their names, or A and B where those are equal."""
    names = a.resolve().name, b.resolve().name
    return names if names[0] != names[1] else ("A", "B")


def recommend_from(
    store: Path | None,
    *,
    scenario: str | None,
    slo: str,
    objective: str | None,
    input_tokens: int | None,
    output_tokens: int | None,
    as_json: bool,
) -> int:
    """`bakeoff recommend`; exit 7 if the evidence does not carry a choice."""
    limits = load_slo(slo)
    summary, _ = read_summary([open_store(store)], limits)
    decision = recommend(
        summary,
        scenario=scenario,
        slo=limits,
        objective=objective,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        today=datetime.now(UTC).date(),
    )
    if as_json:
        print(msgspec.json.encode(decision).decode())
    else:
        print_decision(Console(), decision)
        if note := _elsewhere(decision):
            print(note)
    return 0 if decision.status is not Status.REFUSED else NoAnswerError.exit_code


def _elsewhere(decision: Decision) -> str:
    """What to mind when the evidence comes from another machine than this one."""
    there, here = decision.question.hardware, hardware_label(machine_facts())
    if there is None or there == here:
        return ""
    return (
        f"note: measured on {there}; this machine is {here}: measure here before you rely on it "
        "(bakeoff run)"
    )


def print_decision(console: Console, decision: Decision) -> None:
    """The answer in sentences, the evidence, and the path that was walked."""
    for line in decision_lines(decision):
        console.print(line, highlight=False, markup=False)
    console.print(evidence_table(decision))
    console.print(path_tree(decision))
