"""`run` and `plan`: Hydra's command line, progress while it works, the verdict at the end."""

import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import msgspec
from rich.console import Console
from rich.table import Table

from harness.config import RunConf
from harness.plan.estimate import Bounds, PlanEstimate, estimate
from harness.run.preview import Start, preview
from harness.sweep.hydra_app import run_hydra
from harness.sweep.run_task import RunTask
from harness.types import Outcome
from harness.units import byte_size, count

_UNMEASURED = {Outcome.NOT_READY, Outcome.FAILED}


def _raise_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def interruptible() -> None:
    """Let SIGTERM end a run as an interrupt does: what was measured is kept."""
    signal.signal(signal.SIGTERM, _raise_interrupt)


def run_sweep(overrides: Sequence[str]) -> int:
    """`bakeoff run`: measure, store, print the verdict; returns the exit code."""
    interruptible()
    console = Console(stderr=True, markup=False, highlight=False)  # engines' words hold brackets
    task = RunTask(lambda text: console.print(text, style="dim", soft_wrap=True))
    code = run_hydra("bakeoff run", overrides, task)
    if task.sweep is not None:
        print_outcomes(console, task)
        _print_sweep_verdict(task)
    return code


def print_outcomes(console: Console, task: RunTask) -> None:
    """What was already stored, and each failed job with its reason."""
    assert task.sweep is not None
    stored = len(task.sweep.schedule.stored)
    if stored:
        console.print(
            f"{stored} runs were stored already and are used as they are; rerun=true measures "
            "them again",
            soft_wrap=True,
        )
    failed = [result for result in task.results if result.exit_code]
    if failed:
        good = len(task.results) - len(failed)
        console.print(f"{good} ok, {len(failed)} failed:")
        for result in failed:
            console.print(f"  {result.label}: {result.message}", soft_wrap=True)


def _print_sweep_verdict(task: RunTask) -> None:
    """The verdict over what the sweep measured and what it found stored."""
    from harness.cli.reading import print_verdict, read_summary

    assert task.sweep is not None
    measured = [r.folder for r in task.results if r.outcome not in _UNMEASURED]
    folders = [*task.sweep.schedule.stored, *measured]
    if not folders:
        return
    slo = task.sweep.slo
    summary, _ = read_summary(folders, slo)
    console = Console(markup=False, highlight=False)
    print_verdict(console, summary, slo)
    console.print(f"results: {task.sweep.folder}", soft_wrap=True)
    console.print(
        f"a page of it: bakeoff report {task.sweep.folder} --slo {slo.name}",
        soft_wrap=True,
    )


def show_plan(overrides: Sequence[str], *, as_json: bool) -> int:
    """`bakeoff plan`: jobs, time, disk, money, and how each engine is started; starts nothing."""
    task = RunTask(lambda text: print(text, file=sys.stderr), is_preview=True)
    code = run_hydra("bakeoff plan", overrides, task)
    if task.sweep is None:
        return code
    sweep = task.sweep
    expected = estimate(sweep.confs)
    starts = _starts(sweep.confs)
    if as_json:
        content = {**msgspec.to_builtins(expected), "starts": msgspec.to_builtins(starts)}
        print(msgspec.json.encode(content).decode())
        return code
    console = Console(markup=False, highlight=False)
    console.print(_plan_table(expected))
    _print_starts(console, starts)
    stored = len(sweep.schedule.stored)
    if stored:
        console.print(f"{stored} runs are stored already and would not be measured again")
    return code


def _starts(confs: Sequence[RunConf]) -> list[Start]:
    """Every way in which an engine of the sweep is started, once; ports differ each time."""
    alike = {_alike(conf): conf for conf in confs}
    ordered = sorted(alike.values(), key=lambda conf: (conf.engine.name, conf.model.name))
    return [start for conf in ordered if (start := preview(conf)) is not None]


def _alike(conf: RunConf) -> bytes:
    return msgspec.json.encode((conf.engine, conf.model, conf.launch), order="deterministic")


def _print_starts(console: Console, starts: Sequence[Start]) -> None:
    for start in starts:
        console.print(f"{start.engine} is started by (the port is a free one each time):")
        for path, content in start.files.items():
            console.print(f"  {path}: {content}", soft_wrap=True)
        for command in start.commands:
            console.print(f"  {command}", soft_wrap=True)
        for limit in start.limits:
            console.print(f"  {start.engine}: {limit}", soft_wrap=True)


def _plan_table(expected: PlanEstimate) -> Table:
    table = Table(title="What it will take", title_justify="left")
    for title in ("", "at least", "at most"):
        table.add_column(title, justify="left" if not title else "right")

    def row(title: str, bounds: Bounds, show: Callable[[float], str]) -> None:
        table.add_row(title, show(bounds.low), show(bounds.high))

    jobs = str(expected.jobs)
    table.add_row("jobs (engine starts)", jobs, jobs)
    row("requests", expected.requests, lambda value: count(int(value)))
    row("minutes", expected.minutes, lambda value: f"{value:.1f}")
    row("disk", expected.disk_bytes, byte_size)
    for currency, bounds in (expected.money or {}).items():
        row(f"money, {currency}", bounds, lambda value: f"{value:.2f}")
    if expected.money is None:
        table.add_row("money", "-", "no hardware.price")
    return table
