"""NVIDIA GPUs through NVML: what each says now, what it is, and how two of them are joined.

A question that a GPU, driver or user gets no answer to is None; nothing raises.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pynvml

from harness.engine.gpu_reading import OneGpu

THROTTLE = {  # bits of nvml.h, nvmlClocksEventReasons; GpuIdle (1) holds no work back
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
_PATHS = {  # nvmlDeviceGetTopologyCommonAncestor, in the words of `nvidia-smi topo -m`
    pynvml.NVML_TOPOLOGY_INTERNAL: "X",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
_ECC_S = 5.0  # between two readings of ECC counters, which are slow and hardly ever move
_PCI = Path("/sys/bus/pci/devices")


def _ask(question: Callable[..., Any], *args: Any) -> Any:
    """NVML's answer, or None where this GPU, driver or user does not get one."""
    try:
        answer = question(*args)
    except pynvml.NVMLError:
        return None
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


class NvidiaGpus:
    """The machine's GPUs, or those of `indices` (NVML's order, which CUDA's may differ from)."""

    def __init__(self, indices: Sequence[int] | None = None) -> None:
        self._handles: list[Any] = []
        self._ecc_read_s: float | None = None
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return  # no driver: no GPU
        count = _ask(pynvml.nvmlDeviceGetCount) or 0
        for index in range(count) if indices is None else indices:
            handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None:
                self._handles.append(handle)

    def __len__(self) -> int:
        return len(self._handles)

    def close(self) -> None:
        """Let NVML go."""
        self._handles = []
        _ask(pynvml.nvmlShutdown)

    def read(self) -> list[OneGpu]:
        """Each GPU now; ECC counters every 5 s only."""
        now_s = time.monotonic()
        has_ecc = self._ecc_read_s is None or now_s - self._ecc_read_s >= _ECC_S
        if has_ecc:
            self._ecc_read_s = now_s
        return [_read(handle, has_ecc=has_ecc) for handle in self._handles]

    def pids(self) -> list[int]:
        """The processes that compute on them, as far as this user may see."""
        running = [_ask(pynvml.nvmlDeviceGetComputeRunningProcesses, h) for h in self._handles]
        return sorted({int(one.pid) for found in running for one in found or ()})

    def facts(self) -> list[dict[str, Any]]:
        """What each GPU is and how it is set, for the record; JSON-able."""
        driver = _ask(pynvml.nvmlSystemGetDriverVersion)
        return [_facts(handle, driver) for handle in self._handles]

    def links(self) -> list[list[str]]:
        """How each GPU is joined to each other, as `nvidia-smi topo -m` writes it.

        `NV18`: 18 NVLinks; `PIX`, `PXB`, `PHB`, `NODE`, `SYS`: ever longer ways over PCIe; `?`.
        """
        return [[_link(a, b) for b in self._handles] for a in self._handles]


def _read(handle: Any, *, has_ecc: bool) -> OneGpu:
    util = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    power_mw = _ask(pynvml.nvmlDeviceGetPowerUsage, handle)
    energy_mj = _ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    return OneGpu(
        util_ratio=None if util is None else util.gpu / 100.0,
        memory_bytes=None if memory is None else int(memory.used),
        power_w=None if power_mw is None else power_mw / 1000.0,
        energy_j=None if energy_mj is None else energy_mj / 1000.0,
        sm_clock_mhz=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        temperature_c=_ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        throttle=_throttle(handle),
        ecc_corrected=_ecc(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED) if has_ecc else None,
        ecc_uncorrected=(
            _ecc(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED) if has_ecc else None
        ),
    )


def _throttle(handle: Any) -> frozenset[str] | None:
    """The reasons' words; a driver before 535 knows the question by its older name."""
    bits = _ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if bits is None:
        bits = _ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    if bits is None:
        return None
    return frozenset(word for bit, word in THROTTLE.items() if bits & bit)


def _ecc(handle: Any, kind: int) -> int | None:
    count = _ask(pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_VOLATILE_ECC)
    return None if count is None else int(count)


def _facts(handle: Any, driver: str | None) -> dict[str, Any]:
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    limit_mw = _ask(pynvml.nvmlDeviceGetPowerManagementLimit, handle)
    ecc = _ask(pynvml.nvmlDeviceGetEccMode, handle)
    mig = _ask(pynvml.nvmlDeviceGetMigMode, handle)
    capability = _ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    bus_id = _bus_id(handle)
    return {
        "name": _ask(pynvml.nvmlDeviceGetName, handle),
        "uuid": _ask(pynvml.nvmlDeviceGetUUID, handle),
        "memory_bytes": None if memory is None else int(memory.total),
        "driver": driver,
        "power_limit_w": None if limit_mw is None else limit_mw / 1000.0,
        "ecc": None if ecc is None else bool(ecc[0]),
        "mig": None if mig is None else bool(mig[0]),
        "compute_capability": None if capability is None else ".".join(map(str, capability)),
        "pci_bus_id": bus_id,
        "numa_node": numa_node(bus_id),
    }


def _bus_id(handle: Any) -> str | None:
    """Where it is on the bus, as sysfs writes it: `0000:3b:00.0`."""
    return _bus_name(_ask(pynvml.nvmlDeviceGetPciInfo, handle))


def _bus_name(info: Any) -> str | None:
    if info is None:
        return None
    text = info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def numa_node(bus_id: str | None, devices: Path = _PCI) -> int | None:
    """The NUMA node that a PCI device hangs on; None if the kernel does not say."""
    try:
        node = int((devices / (bus_id or "none") / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _link(a: Any, b: Any) -> str:
    if a is b:
        return "X"
    lanes = _nvlinks(a, b)
    if lanes:
        return f"NV{lanes}"
    level = _ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, a, b)
    return _PATHS.get(level, "?")


def _nvlinks(a: Any, b: Any) -> int:
    """NVLinks from one GPU to another; all of the first one's where a switch is between them."""
    active = [
        link
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS)
        if _ask(pynvml.nvmlDeviceGetNvLinkState, a, link) == pynvml.NVML_FEATURE_ENABLED
    ]
    there = _bus_id(b)
    ends = [_bus_name(_ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, a, n)) for n in active]
    if there is not None and (direct := ends.count(there)):
        return direct
    caps = _ask(pynvml.nvmlDeviceGetP2PStatus, a, b, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    return len(active) if caps == pynvml.NVML_P2P_STATUS_OK else 0
