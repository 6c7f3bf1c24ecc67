"""AMD GPUs through `amdsmi`, where it can be imported and a device is there; never a dependency.

Names and units are those of amdsmi 7.0.2 (source: its amdsmi_interface.py), with the older ones
beside them; nothing of it was run on a GPU. What is not told is None; nothing raises.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.engine.gpu_reading import OneGpu
from harness.engine.nvidia import numa_node

DEVICE = Path("/dev/kfd")  # the driver's compute interface: without it there is no AMD GPU
_MIB = 1024**2


def _library() -> Any:
    """`amdsmi`, begun; None without a device or the library, whatever keeps it from loading."""
    if not DEVICE.exists():
        return None
    try:
        smi = importlib.import_module("amdsmi")
        smi.amdsmi_init()
    except Exception:  # noqa: BLE001 (it loads ROCm's own libraries, which fail in many ways)
        return None
    return smi


def _ask(question: Callable[[], Any]) -> Any:
    """The answer, or None where this GPU, driver or version of the library has none."""
    try:
        answer = question()
    except Exception:  # noqa: BLE001 (its errors differ between versions)
        return None
    return None if answer == "N/A" else answer


def _told(question: Callable[[], Any]) -> Mapping[str, Any]:
    """An answer that is a dict; empty if there is none."""
    answer = _ask(question)
    return answer if isinstance(answer, Mapping) else {}


class AmdGpus:
    """The machine's GPUs, or those of `indices` (amdsmi's order)."""

    def __init__(self, indices: Sequence[int] | None = None) -> None:
        self._smi = _library()
        found = _ask(lambda: list(self._smi.amdsmi_get_processor_handles())) or []
        wanted = range(len(found)) if indices is None else indices
        self._handles: list[Any] = [found[index] for index in wanted if index < len(found)]

    def __len__(self) -> int:
        return len(self._handles)

    def close(self) -> None:
        """Let the library go."""
        self._handles = []
        if self._smi is not None:
            _ask(self._smi.amdsmi_shut_down)

    def read(self) -> list[OneGpu]:
        """Each GPU now; why clocks are held back is not asked."""
        return [_read(self._smi, handle) for handle in self._handles]

    def pids(self) -> list[int]:
        """Not asked: who else computes on them."""
        return []

    def facts(self) -> list[dict[str, Any]]:
        """What each GPU is and how it is set, by the same names as for NVIDIA's."""
        return [_facts(self._smi, handle) for handle in self._handles]

    def links(self) -> list[list[str]]:
        """How each GPU is joined to each other: `XGMI`, `PCIE`, `?`."""
        return [[_link(self._smi, a, b) for b in self._handles] for a in self._handles]


def _read(smi: Any, gpu: Any) -> OneGpu:
    power = _told(lambda: smi.amdsmi_get_power_info(gpu))
    energy = _told(lambda: smi.amdsmi_get_energy_count(gpu))
    clock = _told(lambda: smi.amdsmi_get_clock_info(gpu, smi.AmdSmiClkType.GFX))
    ecc = _told(lambda: smi.amdsmi_get_gpu_total_ecc_count(gpu))
    busy = _number(_told(lambda: smi.amdsmi_get_gpu_activity(gpu)), "gfx_activity")
    used_mib = _number(_told(lambda: smi.amdsmi_get_gpu_vram_usage(gpu)), "vram_used")
    ticks = _number(energy, "energy_accumulator", "power")
    tick_uj = _number(energy, "counter_resolution")
    return OneGpu(
        util_ratio=None if busy is None else busy / 100.0,
        memory_bytes=None if used_mib is None else int(used_mib * _MIB),
        power_w=_number(power, "current_socket_power", "average_socket_power"),
        energy_j=None if ticks is None or tick_uj is None else ticks * tick_uj / 1e6,
        sm_clock_mhz=_number(clock, "clk", "cur_clk"),
        temperature_c=_ask(
            lambda: smi.amdsmi_get_temp_metric(
                gpu, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            )
        ),
        ecc_corrected=_count(ecc, "correctable_count"),
        ecc_uncorrected=_count(ecc, "uncorrectable_count"),
    )


def _facts(smi: Any, gpu: Any) -> dict[str, Any]:
    asic = _told(lambda: smi.amdsmi_get_gpu_asic_info(gpu))
    total_mib = _number(_told(lambda: smi.amdsmi_get_gpu_vram_usage(gpu)), "vram_total")
    cap_uw = _number(_told(lambda: smi.amdsmi_get_power_cap_info(gpu)), "power_cap")
    bus_id = _ask(lambda: smi.amdsmi_get_gpu_device_bdf(gpu))
    return {
        "name": asic.get("market_name"),
        "uuid": _ask(lambda: smi.amdsmi_get_gpu_device_uuid(gpu)),
        "memory_bytes": None if total_mib is None else int(total_mib * _MIB),
        "driver": _told(lambda: smi.amdsmi_get_gpu_driver_info(gpu)).get("driver_version"),
        "power_limit_w": None if cap_uw is None else cap_uw / 1e6,
        "ecc": None,
        "mig": None,
        "compute_capability": asic.get("target_graphics_version"),
        "pci_bus_id": bus_id,
        "numa_node": numa_node(bus_id),
    }


def _link(smi: Any, a: Any, b: Any) -> str:
    if a is b:
        return "X"
    kind = _told(lambda: smi.amdsmi_topo_get_link_type(a, b)).get("type")
    name = str(getattr(_ask(lambda: smi.AmdSmiLinkType(kind)), "name", "?"))
    return name.removeprefix("AMDSMI_LINK_TYPE_")


def _number(told: Mapping[str, Any], *names: str) -> float | None:
    """The first of these names that holds a number; `N/A` is none."""
    values = (told.get(name) for name in names)
    return next((v for v in values if isinstance(v, int | float)), None)


def _count(told: Mapping[str, Any], name: str) -> int | None:
    value = _number(told, name)
    return None if value is None else int(value)
