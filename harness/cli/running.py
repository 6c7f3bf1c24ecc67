"""`run` and `plan`: Hydra's command line, progress while it works, the verdict at the end."""

import signal
import sys
from collections.abc import Sequence
from types import FrameType

import msgspec
from rich.console import Console
from rich.table import Table

from harness.config import SloConf
from harness.plan.estimate import SweepEstimate, estimate_sweep
from harness.sweep.hydra_app import run_hydra
from harness.sweep.run_task import RunTask
from harness.types import Outcome

_UNMEASURED = {Outcome.NOT_READY, Outcome.FAILED}


def _raise_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run_sweep(overrides: Sequence[str]) -> int:
    """`bakeoff run`: measure, store, print the verdict; returns the exit code."""
    signal.signal(signal.SIGTERM, _raise_interrupt)
    console = Console(stderr=True)
    task = RunTask(lambda text: console.print(text, style="dim", highlight=False))
    code = run_hydra("bakeoff run", overrides, task)
    if task.sweep is not None:
        _print_outcomes(console, task)
        _print_sweep_verdict(task)
    return code


def _print_outcomes(console: Console, task: RunTask) -> None:
    assert task.sweep is not None
    stored = len(task.sweep.schedule.stored)
    if stored:
        console.print(
            f"{stored} runs were stored already and are used as they are; rerun=true measures "
            "them again",
            highlight=False,
        )
    failed = [result for result in task.results if result.exit_code]
    if failed:
        good = len(task.results) - len(failed)
        console.print(f"{good} ok, {len(failed)} failed:", highlight=False)
        for result in failed:
            console.print(f"  {result.label}: {result.message}", highlight=False, soft_wrap=True)


def _print_sweep_verdict(task: RunTask) -> None:
    """The verdict over what the sweep measured and what it found stored."""
    from harness.cli.reading import print_verdict, read_summary

    assert task.sweep is not None
    if not task.sweep.jobs:
        return
    measured = [r.folder for r in task.results if r.outcome not in _UNMEASURED]
    folders = [*task.sweep.schedule.stored, *measured]
    if not folders:
        return
    slo: SloConf = task.sweep.jobs[0].conf.slo
    summary, _ = read_summary(folders, slo)
    console = Console()
    print_verdict(console, summary, slo)
    console.print(f"results: {task.sweep.folder}", highlight=False, soft_wrap=True)
    console.print(
        f"a page of it: bakeoff report {task.sweep.folder} --slo {slo.name}",
        highlight=False,
        soft_wrap=True,
    )


def show_plan(overrides: Sequence[str], *, as_json: bool) -> int:
    """`bakeoff plan`: jobs, requests, minutes, disk and money; starts nothing."""
    task = RunTask(lambda text: print(text, file=sys.stderr), is_preview=True)
    code = run_hydra("bakeoff plan", overrides, task)
    if task.sweep is None:
        return code
    sweep = task.sweep
    estimate = estimate_sweep([(job.conf, job.plan) for job in sweep.to_measure])
    if as_json:
        print(msgspec.json.encode(estimate).decode())
        return code
    console = Console()
    console.print(_plan_table(estimate))
    stored = len(sweep.schedule.stored)
    if stored:
        console.print(f"{stored} runs are stored already and would not be measured again")
    return code


def _plan_table(estimate: SweepEstimate) -> Table:
    raise NotImplementedError(estimate)
