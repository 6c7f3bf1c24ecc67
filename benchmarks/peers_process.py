"""One run of a tool: limited in time, and ended with all that it started."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

_SHOWN_LINES = 3  # of the output of a tool that failed


class NoResultError(RuntimeError):
    """A tool brought no figures; its reason."""


def run_limited(
    argv: Sequence[str],
    folder: Path,
    *,
    limit_s: float,
    env: Mapping[str, str] | None = None,
    good_codes: Sequence[int] = (0,),
) -> None:
    """Run a tool in its folder, its output into `output.txt` there; `env` is set besides ours.

    NoResultError, with its last lines, if it does not end well within `limit_s`; then it and all
    that it started is ended.
    """
    output = folder / "output.txt"
    with output.open("wb") as file, ExitStack() as stack:
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
