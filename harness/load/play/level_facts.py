"""How a level went, as the process that played it tells."""

from dataclasses import dataclass

from harness.types import ClientFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFacts:
    """How a level went in one process; times absolute on its monotonic clock."""

    start_s: float
    window_end_s: float
    drained_s: float
    played: int
    exhausted: bool
    is_cut: bool
    turns_skipped: int
    client: ClientFacts
