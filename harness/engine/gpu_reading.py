"""What GPUs say of themselves at one moment: each alone, and all of them together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneGpu:
    """One GPU at one moment; None for what it does not tell.

    `util_ratio`: share of time in which a kernel ran, not how full the GPU was. `energy_j`,
    `ecc_*`: counters since the driver was loaded. `throttle`: why its clocks are held back, in
    words of `harness.engine.nvidia.THROTTLE`; empty: they are not.
    """

    util_ratio: float | None = None
    memory_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttle: frozenset[str] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """All watched GPUs at one moment; a field is None if no GPU tells it.

    Mean utilisation; memory and power in sum; the lowest clock and the highest temperature;
    `throttle`: the reasons of any of them, sorted and joined by commas. A counter is the sum over
    all, and None unless all of them tell it, else it would jump. `each_*`: one value a GPU, in
    their order.
    """

    util_ratio: float | None = None
    memory_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttle: str | None = None
    ecc_corrected_total: int | None = None
    ecc_uncorrected_total: int | None = None
    each_util_ratio: tuple[float | None, ...] | None = None
    each_memory_bytes: tuple[int | None, ...] | None = None

    def columns(self) -> dict[str, Any]:
        """The same by the names that `HostSample` gives them."""
        return {f"gpu_{one.name}": getattr(self, one.name) for one in fields(self)}


def together(gpus: Sequence[OneGpu]) -> GpuReading:
    """Many GPUs as one reading; all None without a GPU."""
    if not gpus:
        return GpuReading()
    reasons = [gpu.throttle for gpu in gpus if gpu.throttle is not None]
    return GpuReading(
        util_ratio=_known([gpu.util_ratio for gpu in gpus], _mean),
        memory_bytes=_known([gpu.memory_bytes for gpu in gpus], sum),
        power_w=_known([gpu.power_w for gpu in gpus], sum),
        energy_j=_counter([gpu.energy_j for gpu in gpus]),
        sm_clock_mhz=_known([gpu.sm_clock_mhz for gpu in gpus], min),
        temperature_c=_known([gpu.temperature_c for gpu in gpus], max),
        throttle=",".join(sorted(frozenset().union(*reasons))) if reasons else None,
        ecc_corrected_total=_counter([gpu.ecc_corrected for gpu in gpus]),
        ecc_uncorrected_total=_counter([gpu.ecc_uncorrected for gpu in gpus]),
        each_util_ratio=tuple(gpu.util_ratio for gpu in gpus),
        each_memory_bytes=tuple(gpu.memory_bytes for gpu in gpus),
    )


def _known(
    values: Sequence[_Number | None], how: Callable[[list[_Number]], _Number]
) -> _Number | None:
    known = [value for value in values if value is not None]
    return how(known) if known else None


def _counter(values: Sequence[_Number | None]) -> _Number | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if len(known) == len(values) else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
