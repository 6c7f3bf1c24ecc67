"""Runs `uv` for one engine environment; says what it does and why it failed."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import uv

from harness.engine.pip_settings import uv_settings
from harness.errors import EnvironmentInstallError

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TREE = re.compile(r"^(cause|caused by|error|×|╰─▶|├─▶|│|╰|─|▶)[\s:]*", re.IGNORECASE)
_SHOWN = ("Resolved", "Downloading", "Downloaded", "Built", "Building", "Prepared", "Installed")
_LONGEST_REASON = 500


def failure_reason(lines: Sequence[str]) -> str:
    """What uv's output says went wrong, in one line: its error, the first and the last cause."""
    text = [_COLOURS.sub("", line).strip() for line in lines]
    starts = [i for i, line in enumerate(text) if re.match(r"(error\b|×)", line)]
    found: list[str] = []
    for line in text[starts[0] if starts else 0 :]:
        if line.lower().startswith("hint"):
            break
        # A line without a mark of its own goes on with the sentence of the line above it.
        bare = _TREE.sub("", line)
        if found and bare == line and line and starts:
            found[-1] += f" {line}"
        elif bare:
            found.append(bare)
    if not starts:
        found = found[-1:]
    reason = ": ".join(dict.fromkeys(part.rstrip(" .:") for part in [*found[:2], *found[-1:]]))
    return (reason or "uv said nothing")[:_LONGEST_REASON]


class Installer:
    """`uv` with pip's settings, for one engine; every failure names how to try again."""

    def __init__(self, name: str, folder: Path, progress: Callable[[str], None]) -> None:
        self._name = name
        self._folder = folder
        self._progress = progress
        settings = uv_settings(os.environ)
        self._index_flags = settings.flags
        self._env = dict(os.environ) | dict(settings.env) | {"UV_NO_PROGRESS": "1"}
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME"):
            self._env.pop(variable, None)

    def make_venv(self, python: str) -> None:
        """Make an empty environment in the folder, replacing what is there."""
        if self._folder.exists():
            shutil.rmtree(self._folder)
        self._run(["venv", "--python", python, str(self._folder)])

    def install(
        self, packages: Sequence[str], *, overrides: Path | None = None, alone: bool = False
    ) -> None:
        """Install packages with what they need, or `alone` without; nothing if there are none."""
        if not packages:
            return
        flags = ["--no-deps"] if alone else []
        if overrides is not None:
            flags += ["--override", str(overrides)]
        python = self._folder / "bin" / "python"
        install = ["pip", "install", "--compile-bytecode", "--python", str(python)]
        self._run([*install, *flags, *self._index_flags, "--", *packages])

    def _run(self, arguments: Sequence[str]) -> None:
        lines: list[str] = []
        try:
            command = [uv.find_uv_bin(), "--color", "never", *arguments]
            process = subprocess.Popen(
                command,
                env=self._env,
                cwd=self._folder.parent,  # no project of the user's may join in
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise self._error(str(error)) from error
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                if line.strip().startswith(_SHOWN):
                    self._progress(line.strip())
            code = process.wait()
        finally:
            process.kill()  # interrupted: uv must not go on behind our back
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if code != 0:
            raise self._error(failure_reason(lines))

    def _error(self, reason: str) -> EnvironmentInstallError:
        return EnvironmentInstallError(
            f"engine={self._name}: its environment cannot be installed: {reason}; "
            f"mend that, then run: bakeoff engines install {self._name}"
        )
