"""The real command line in a process of its own, for end-to-end tests."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROGRAM = (sys.executable, "-c", "from harness.cli.app import main; main()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended; `out` and `err` are what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of standard error, without empty ones."""
        return [line for line in self.err.splitlines() if line.strip()]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """Runs `bakeoff` in the folder `cwd`. `env`: comes on top of our own environment."""

    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = PROGRAM

    def __call__(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout_s: float = 240.0
    ) -> Ended:
        """Run one command to its end; subprocess.TimeoutExpired if it does not end."""
        process = self.start(*arguments, env=env)
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
            process.wait()
        return Ended(code=process.returncode, out=out, err=err)

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start one command and leave it running."""
        wide = {"COLUMNS": "240", "TERM": "dumb", "NO_COLOR": "1"}
        return subprocess.Popen(
            [*self.program, *arguments],
            cwd=self.cwd,
            env={**os.environ, **wide, **self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
