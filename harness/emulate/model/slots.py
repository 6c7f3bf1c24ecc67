"""Places for the sequences that run, as an engine with slots shows them."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from harness.emulate.model.sequence import Sequence


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One place. `sequence`: what works in it now. `request`: what the last one brought along.

    `left_tokens`: what the last one left in it; None before its first.
    """

    number: int
    sequence: Sequence | None = None
    request: Any = None
    left_tokens: int | None = None

    @property
    def held_tokens(self) -> int | None:
        """Tokens in it: those at work, else those that were left."""
        return self.left_tokens if self.sequence is None else self.sequence.held_tokens


class Slots:
    """All of them, by number. The free one that was used longest ago is the next to be taken.

    Of those never used the last one goes first, as in llama.cpp's server (seen with b11549).
    """

    def __init__(self, count: int) -> None:
        self.all = tuple(Slot(number=number) for number in range(count))
        self._free = deque(reversed(self.all))

    def take(self, sequence: Sequence, request: Any) -> None:
        """Give a sequence that begins its place."""
        slot = self._free.popleft()
        slot.sequence, slot.request = sequence, request
        sequence.slot = slot.number

    def leave(self, sequence: Sequence) -> None:
        """Its place is free again; nothing happens if it has never had one."""
        if sequence.slot is None:
            return
        slot = self.all[sequence.slot]
        slot.left_tokens, slot.sequence = sequence.held_tokens, None
        self._free.append(slot)
