"""One run of a tool: on one core, limited in time, and ended with all that it started."""

import os
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from harness.calibrate.cores import pinned

_SHOWN_LINES = 3  # of the output of a tool that failed


class NoResultError(RuntimeError):
    """A tool brought no figures; its reason."""


def run_limited(
    argv: Sequence[str],
    folder: Path,
    *,
    cpu: int,
    limit_s: float,
    env: Mapping[str, str] | None = None,
    good_codes: Sequence[int] = (0,),
) -> float:
    """Run a tool on one core in its folder, its output into `output.txt` there.

    Gives the share of the core that others used meanwhile, 0 to 1: a tool that had to wait for
    them is slower than it is. `env` is set besides ours. NoResultError, with the last lines of
    output, if it does not end well within `limit_s`; then it and all that it started is ended.
    """
    output = folder / "output.txt"
    begin_s, others_s = time.monotonic(), _others_s(cpu)
    with output.open("wb") as file, pinned(cpu), ExitStack() as stack:
        process = psutil.Popen(
            argv,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        stack.callback(_end, process)
        try:
            code = process.wait(timeout=limit_s)
        except psutil.TimeoutExpired as error:
            reason = f"not done after {limit_s:.0f} s: {_last_words(output)}"
            raise NoResultError(reason) from error
    if code not in good_codes:
        raise NoResultError(f"it ended with code {code}: {_last_words(output)}")
    used_s = _others_s(cpu) - others_s
    return min(max(used_s / (time.monotonic() - begin_s), 0.0), 1.0)


def _others_s(cpu: int) -> float:
    """Time that a core worked, without that of our children that have ended.

    Interrupts are left out: those of a tool's own packages are not counted as its own.
    """
    times = psutil.cpu_times(percpu=True)[cpu]
    core_s = times.user + times.nice + times.system + getattr(times, "steal", 0.0)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return float(core_s - children.ru_utime - children.ru_stime)


def _last_words(output: Path) -> str:
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines()]
    return " / ".join([line for line in lines if line][-_SHOWN_LINES:])


def _end(process: psutil.Popen) -> None:
    """End a process that still runs, with everything that it started."""
    if process.is_running():
        for one in [*process.children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):  # it ended by itself just now
                one.kill()
        process.wait()
