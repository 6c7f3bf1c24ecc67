"""How late the emulator has sent its tokens, in bounded memory."""

from collections.abc import Iterable

_STEP_S = 1e-4
_STEPS = 20_000  # up to 2 s; later ones count as 2 s


class Lateness:
    """A histogram with buckets of 0.1 ms."""

    def __init__(self) -> None:
        self._counts = [0] * (_STEPS + 1)
        self.max_s = 0.0

    @property
    def events(self) -> int:
        """Tokens counted."""
        return sum(self._counts)

    def note(self, due_s: float, sent_s: Iterable[float]) -> None:
        """Count tokens that were due together."""
        counts, latest_s = self._counts, due_s
        for latest_s in sent_s:
            counts[min(int((latest_s - due_s) / _STEP_S), _STEPS)] += 1
        self.max_s = max(self.max_s, latest_s - due_s)

    def quantile_s(self, ratio: float) -> float | None:
        """The upper end of the bucket that holds this share of all; None if there are none."""
        left = ratio * self.events
        if not left:
            return None
        for bucket, count in enumerate(self._counts):
            left -= count
            if left <= 0:
                return (bucket + 1) * _STEP_S
        return self.max_s
