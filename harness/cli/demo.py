"""`demo`: a small real sweep with the embedded engine, from nothing to a verdict and a page."""

import sys
from pathlib import Path

from rich.console import Console

from harness.cli.reading import read_summary
from harness.cli.running import interruptible, print_outcomes
from harness.cli.slo import load_slo
from harness.recommend.decide import recommend
from harness.recommend.text import decision_lines
from harness.report.text import comparison_table, verdict_lines
from harness.report.write import write_report
from harness.sweep.hydra_app import run_hydra
from harness.sweep.run_task import RunTask

_EXPERIMENTS = ("demo", "demo_prefill")
_SLO = "cpu_small"


def run_demo() -> int:
    """`bakeoff demo`: measure both scenarios, print the verdict, write `reports/demo.html`."""
    interruptible()
    notes = Console(stderr=True, markup=False, highlight=False)
    folder, code = Path("results/demo"), 0
    for experiment in _EXPERIMENTS:
        task = RunTask(lambda text: notes.print(text, style="dim", soft_wrap=True))
        code = max(code, run_hydra("bakeoff demo", [f"experiment={experiment}"], task))
        print_outcomes(notes, task)
    slo = load_slo(_SLO)
    summary, runs = read_summary([folder], slo)
    decision = recommend(summary, slo=slo, scenario="chat")
    page = write_report(summary, runs, Path("reports/demo.html"), slo=slo, decision=decision)
    who_wins, _, trust = verdict_lines(summary)
    console = Console(markup=False, highlight=False)
    for line in (who_wins, decision_lines(decision)[0], trust):
        console.print(line)
    console.print(comparison_table(summary))
    console.print(f"results: {folder}\nreport:  {page}", soft_wrap=True)
    sys.stdout.flush()
    return code
