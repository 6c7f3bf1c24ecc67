"""How an engine's process ended."""

import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How an engine ended: an exit code or a signal, and when on `time.monotonic`.

    Both are None if its keeper was killed, so that nobody saw the end.
    """

    code: int | None
    signal: int | None
    at_s: float

    def __str__(self) -> str:
        if self.signal is not None:
            known = {s.value: s.name for s in signal.Signals}
            return f"signal {self.signal} ({known.get(self.signal, 'unknown')})"
        return "an unknown status" if self.code is None else f"exit code {self.code}"
