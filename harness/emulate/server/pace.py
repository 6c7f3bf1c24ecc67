"""Between the machine's clock and the engine's virtual time."""

import time


class Pace:
    """Virtual time is 0 when this is made, and runs `speed` times as fast as the machine's."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._zero_s = time.monotonic()

    def virtual_s(self, monotonic_s: float) -> float:
        """The virtual time of a moment of the machine's monotonic clock."""
        return (monotonic_s - self._zero_s) * self.speed

    def monotonic_s(self, virtual_s: float) -> float:
        """When a virtual moment is, on the machine's monotonic clock."""
        return self._zero_s + virtual_s / self.speed

    def now_s(self) -> float:
        """Virtual time now."""
        return self.virtual_s(time.monotonic())
