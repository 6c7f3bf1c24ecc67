"""The machine's GPUs, whoever made them; a machine without one simply has none."""

from collections.abc import Sequence
from typing import Any, Self

from harness.engine.amd import AmdGpus
from harness.engine.gpu_reading import GpuReading, together
from harness.engine.nvidia import NvidiaGpus


class Gpus:
    """All GPUs, or those of `indices` in their driver's order; NVIDIA's before AMD's."""

    def __init__(self, indices: Sequence[int] | None = None) -> None:
        self._gpus: NvidiaGpus | AmdGpus = NvidiaGpus(indices)
        if not len(self._gpus):
            self._gpus.close()
            self._gpus = AmdGpus(indices)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the driver's library go."""
        self._gpus.close()

    def read(self) -> GpuReading:
        """All of them now; None for what none of them tells."""
        return together(self._gpus.read())

    def pids(self) -> list[int]:
        """The processes that compute on them, as far as is known."""
        return self._gpus.pids()

    def facts(self) -> list[dict[str, Any]]:
        """What each GPU is and how it is set, for the record; JSON-able."""
        return self._gpus.facts()

    def links(self) -> list[list[str]]:
        """How each GPU is joined to each other, a row each; empty for fewer than two."""
        return self._gpus.links() if len(self._gpus) > 1 else []
