"""A running emulator for tests."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_END_S = 20.0


@dataclass(slots=True, kw_only=True)
class Emulated:
    """`summary`: what it says at its end, once it has been stopped."""

    base_url: str
    process: "subprocess.Popen[str]"
    knobs: dict[str, Any]
    summary: dict[str, Any] = field(default_factory=dict)

    def stop(self) -> dict[str, Any]:
        """SIGTERM; returns the summary. Fails if it does not end well."""
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=_END_S)
        assert self.process.returncode == 0, self.process.returncode
        self.summary = json.loads(out)
        return self.summary


@contextmanager
def emulated(*options: str, engine: str = "openai") -> Iterator[Emulated]:
    """Start an emulator with these options of its command line, on a free port of loopback."""
    argv = [sys.executable, "-m", "harness.emulate", engine, *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            knobs = process.stdout.readline().removeprefix(f"emulated {engine}: ")
            where = process.stdout.readline().removeprefix("listening on ").strip()
            yield Emulated(base_url=where, process=process, knobs=json.loads(knobs))
        finally:
            process.kill()
