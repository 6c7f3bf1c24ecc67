"""Starting a server: its files written, its steps done once, its process kept to its end."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.adapter import PrepareStep
from harness.engine.process import EngineProcess
from harness.errors import ConfigError
from harness.run.serving import Serving


@contextmanager
def started(
    how: Serving, name: str, *, log_path: Path, lock: int, progress: Callable[[str], None]
) -> Iterator[EngineProcess]:
    """The running engine, after its files are written and its steps are done.

    `lock`: a file descriptor held until its last process is gone. ConfigError if a step fails or
    the program cannot be started.
    """
    for path, content in how.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    for step in how.steps:
        _prepare(step, name, log_path, progress)
    with EngineProcess(
        name,
        how.argv,
        how.env,
        log_path=log_path,
        stop_timeout_s=how.stop_timeout_s,
        keep_fds=(lock,),
        container=how.container,
    ) as process:
        yield process


def _prepare(step: PrepareStep, name: str, log_path: Path, progress: Callable[[str], None]) -> None:
    if step.output.exists():
        return
    progress(f"  {step.what}")
    step.output.parent.mkdir(parents=True, exist_ok=True)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as log:
        ended = subprocess.run(
            step.argv,
            env={**os.environ, **step.env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
        )
    if ended.returncode or not step.output.exists():
        how = f"ended with {ended.returncode}" if ended.returncode else f"made no {step.output}"
        raise ConfigError(f"engine={name}: {step.what} {how}; see its words in {log_path}")
