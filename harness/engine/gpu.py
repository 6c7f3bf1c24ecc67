"""NVIDIA GPUs through NVML; a machine without one simply has none, and nothing raises."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pynvml

from harness.errors import EngineDiedError

RELEASE_SLACK_BYTES = 200_000_000  # other processes' memory moves a little
RELEASE_TIMEOUT_S = 10.0  # the driver frees a killed process's memory after its end
POLL_S = 0.2


def _ask(question: Callable[..., Any], *args: Any) -> Any:
    """NVML's answer, or None where this GPU, driver or user does not get one."""
    try:
        answer = question(*args)
    except pynvml.NVMLError:
        return None
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """All watched GPUs at one moment: mean utilisation 0..1, memory used and power in sum."""

    util_ratio: float | None = None
    memory_bytes: int | None = None
    power_w: float | None = None


class Gpus:
    """The machine's GPUs, or those of `indices` (NVML's order, which CUDA's may differ from)."""

    def __init__(self, indices: Sequence[int] | None = None) -> None:
        self._handles: list[Any] = []
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return  # no driver: no GPU
        count = _ask(pynvml.nvmlDeviceGetCount) or 0
        for index in range(count) if indices is None else indices:
            handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None:
                self._handles.append(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let NVML go."""
        self._handles = []
        _ask(pynvml.nvmlShutdown)

    def read(self) -> GpuReading:
        """One reading; None for what no GPU tells.

        Utilisation is NVML's share of time in which a kernel ran, not how full the GPU was.
        """
        utils = [_ask(pynvml.nvmlDeviceGetUtilizationRates, h) for h in self._handles]
        ratios = [u.gpu / 100.0 for u in utils if u is not None]
        memories = [_ask(pynvml.nvmlDeviceGetMemoryInfo, h) for h in self._handles]
        used = [int(m.used) for m in memories if m is not None]
        powers = [_ask(pynvml.nvmlDeviceGetPowerUsage, h) for h in self._handles]
        watts = [p / 1000.0 for p in powers if p is not None]
        return GpuReading(
            util_ratio=sum(ratios) / len(ratios) if ratios else None,
            memory_bytes=sum(used) if used else None,
            power_w=sum(watts) if watts else None,
        )

    def check_released(
        self, before_bytes: int | None, *, timeout_s: float = RELEASE_TIMEOUT_S
    ) -> None:
        """Wait until the memory used is back to `before_bytes` (of `read`), within 200 MB.

        EngineDiedError if it stays taken: the next engine would start beside a ghost.
        """
        deadline_s = time.monotonic() + timeout_s
        while before_bytes is not None:
            used_bytes = self.read().memory_bytes
            if used_bytes is None or used_bytes <= before_bytes + RELEASE_SLACK_BYTES:
                return
            if time.monotonic() >= deadline_s:
                raise EngineDiedError(
                    f"GPU memory: {used_bytes / 1e9:.2f} GB are still in use {timeout_s:g} s after "
                    f"the engine's end, {before_bytes / 1e9:.2f} GB before its start; "
                    "find who holds it with nvidia-smi before the next run"
                )
            time.sleep(POLL_S)

    def facts(self) -> list[dict[str, Any]]:
        """What each GPU is and how it is set, for the record; JSON-able."""
        driver = _ask(pynvml.nvmlSystemGetDriverVersion)
        return [self._facts_of(handle, driver) for handle in self._handles]

    @staticmethod
    def _facts_of(handle: Any, driver: str | None) -> dict[str, Any]:
        memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        limit = _ask(pynvml.nvmlDeviceGetPowerManagementLimit, handle)
        ecc = _ask(pynvml.nvmlDeviceGetEccMode, handle)
        mig = _ask(pynvml.nvmlDeviceGetMigMode, handle)
        return {
            "name": _ask(pynvml.nvmlDeviceGetName, handle),
            "uuid": _ask(pynvml.nvmlDeviceGetUUID, handle),
            "memory_bytes": None if memory is None else int(memory.total),
            "driver": driver,
            "power_limit_w": None if limit is None else limit / 1000.0,
            "ecc": None if ecc is None else bool(ecc[0]),
            "mig": None if mig is None else bool(mig[0]),
        }
