"""GPUs by a made-up NVML and a made-up amdsmi."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from harness.engine import amd
from harness.engine.gpu import Gpus
from harness.engine.gpu_reading import GpuReading, OneGpu, together
from harness.engine.nvidia import numa_node
from harness.types import HostSample

BUSES = (b"00000000:3B:00.0", b"00000000:AF:00.0")


def refuse(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlSystemGetDriverVersion": lambda: b"575.1",
    "nvmlDeviceGetName": lambda _: "NVIDIA H200",
    "nvmlDeviceGetUUID": lambda h: f"GPU-{h}",
    "nvmlDeviceGetUtilizationRates": lambda h: SimpleNamespace(gpu=(50, 100)[h]),
    "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(used=(3, 4)[h], total=100),
    "nvmlDeviceGetPowerUsage": lambda h: refuse() if h else 250_500,
    "nvmlDeviceGetTotalEnergyConsumption": lambda h: (1_000_000, 2_500_000)[h],
    "nvmlDeviceGetClockInfo": lambda h, kind: {pynvml.NVML_CLOCK_SM: (1980, 1700)[h]}[kind],
    "nvmlDeviceGetTemperature": lambda h, _: (61, 70)[h],
    "nvmlDeviceGetCurrentClocksEventReasons": lambda h: (0x1, 0x44)[h],
    "nvmlDeviceGetTotalEccErrors": lambda h, kind, _: (7, 0)[kind] + h,
    "nvmlDeviceGetPowerManagementLimit": lambda _: 700_000,
    "nvmlDeviceGetEccMode": lambda _: [1, 1],
    "nvmlDeviceGetMigMode": lambda h: refuse() if h else [0, 0],
    "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
    "nvmlDeviceGetPciInfo": lambda h: SimpleNamespace(busId=BUSES[h]),
    "nvmlDeviceGetNvLinkState": refuse,
    "nvmlDeviceGetNvLinkRemotePciInfo": refuse,
    "nvmlDeviceGetP2PStatus": refuse,
    "nvmlDeviceGetTopologyCommonAncestor": lambda *_: pynvml.NVML_TOPOLOGY_SYSTEM,
}


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[..., Any]]:
    """NVML with two GPUs, the second of which tells no power and no MIG mode; to be changed."""
    answers = dict(ANSWERS)
    for name in ANSWERS:
        monkeypatch.setattr(pynvml, name, lambda *args, name=name: answers[name](*args))
    return answers


@pytest.fixture(autouse=True)
def _no_amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amd, "DEVICE", tmp_path / "no kfd")


def test_readings_are_of_all_that_is_told(nvml: object) -> None:
    with Gpus() as gpus:
        assert gpus.read() == GpuReading(
            util_ratio=0.75,
            memory_bytes=7,
            power_w=250.5,
            energy_j=3500.0,
            sm_clock_mhz=1700,
            temperature_c=70,
            throttle="hw_thermal_slowdown,sw_power_cap",
            ecc_corrected_total=15,
            ecc_uncorrected_total=1,
            each_util_ratio=(0.5, 1.0),
            each_memory_bytes=(3, 4),
        )
    with Gpus([1]) as gpus:
        second = gpus.read()
    assert (second.util_ratio, second.memory_bytes, second.power_w) == (1.0, 4, None)


def test_ecc_counters_are_not_read_every_time(nvml: object) -> None:
    with Gpus() as gpus:
        assert gpus.read().ecc_corrected_total == 15
        assert gpus.read().ecc_corrected_total is None


def test_an_older_driver_knows_throttling_by_its_older_name(
    nvml: dict[str, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml["nvmlDeviceGetCurrentClocksEventReasons"] = refuse
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda _: 0x8)
    with Gpus() as gpus:
        assert gpus.read().throttle == "hw_slowdown"
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", refuse)
    with Gpus() as gpus:
        assert gpus.read().throttle is None  # not told, and not "none"


def test_a_counter_that_one_gpu_does_not_tell_is_none() -> None:
    both = together([OneGpu(energy_j=5.0, power_w=1.0), OneGpu(power_w=2.0)])
    assert (both.energy_j, both.power_w, both.throttle) == (None, 3.0, None)
    assert together([OneGpu(throttle=frozenset()), OneGpu()]).throttle == ""


def test_a_reading_has_the_columns_of_a_host_sample() -> None:
    columns = GpuReading(util_ratio=0.5, each_util_ratio=(0.5,)).columns()
    sample = HostSample(t_s=0.0, cpu_total_ratio=0.0, **columns)
    assert (sample.gpu_util_ratio, sample.gpu_each_util_ratio) == (0.5, (0.5,))
    assert set(columns) == {n for n in HostSample.__dataclass_fields__ if n.startswith("gpu_")}


def test_facts_have_none_for_what_is_not_told(nvml: object) -> None:
    with Gpus() as gpus:
        first, second = gpus.facts()
    assert first == {
        "name": "NVIDIA H200",
        "uuid": "GPU-0",
        "memory_bytes": 100,
        "driver": "575.1",
        "power_limit_w": 700.0,
        "ecc": True,
        "mig": False,
        "compute_capability": "9.0",
        "pci_bus_id": "0000:3b:00.0",
        "numa_node": None,
    }
    assert second["mig"] is None


def test_the_numa_node_of_a_device_is_the_kernels(tmp_path: Path) -> None:
    for name, text in (("0000:3b:00.0", "1\n"), ("0000:af:00.0", "-1\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "numa_node").write_text(text)
    assert numa_node("0000:3b:00.0", tmp_path) == 1
    assert numa_node("0000:af:00.0", tmp_path) is None
    assert numa_node(None, tmp_path) is None


def test_the_way_between_gpus_over_pcie(nvml: dict[str, Callable[..., Any]]) -> None:
    with Gpus() as gpus:
        assert gpus.links() == [["X", "SYS"], ["SYS", "X"]]
    nvml["nvmlDeviceGetTopologyCommonAncestor"] = refuse
    with Gpus() as gpus:
        assert gpus.links() == [["X", "?"], ["?", "X"]]
    with Gpus([0]) as gpus:
        assert gpus.links() == []


def test_nvlinks_are_counted_to_the_other_gpu(nvml: dict[str, Callable[..., Any]]) -> None:
    nvml["nvmlDeviceGetNvLinkState"] = lambda _, link: int(link < 4)
    nvml["nvmlDeviceGetNvLinkRemotePciInfo"] = lambda h, link: SimpleNamespace(
        busId=BUSES[1 - h] if link < 3 else b"00000000:01:00.0"
    )
    with Gpus() as gpus:
        assert gpus.links() == [["X", "NV3"], ["NV3", "X"]]


def test_behind_a_switch_all_nvlinks_count(nvml: dict[str, Callable[..., Any]]) -> None:
    nvml["nvmlDeviceGetNvLinkState"] = lambda _, link: int(link < 18)
    nvml["nvmlDeviceGetP2PStatus"] = lambda *_: pynvml.NVML_P2P_STATUS_OK
    with Gpus() as gpus:
        assert gpus.links() == [["X", "NV18"], ["NV18", "X"]]


def test_who_computes_on_them_is_told(nvml: object, monkeypatch: pytest.MonkeyPatch) -> None:
    running = {0: [SimpleNamespace(pid=9), SimpleNamespace(pid=7)], 1: [SimpleNamespace(pid=9)]}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", running.__getitem__)
    with Gpus() as gpus:
        assert gpus.pids() == [7, 9]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", refuse)
    with Gpus() as gpus:
        assert gpus.pids() == []


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    with Gpus() as gpus:
        assert gpus.read() == GpuReading()
        assert (gpus.facts(), gpus.links()) == ([], [])


def fail(*_: object) -> None:
    raise RuntimeError("AMDSMI_STATUS_NOT_SUPPORTED")


@pytest.fixture
def amdsmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`amdsmi` with two GPUs, by the names and units of its version 7.0.2."""
    device = tmp_path / "kfd"
    device.touch()
    monkeypatch.setattr(amd, "DEVICE", device)
    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    smi = SimpleNamespace(
        amdsmi_init=lambda: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: ["a", "b"],
        amdsmi_get_gpu_activity=lambda g: {"gfx_activity": {"a": 40, "b": "N/A"}[g]},
        amdsmi_get_gpu_vram_usage=lambda _: {"vram_total": 196_288, "vram_used": 1_024},
        amdsmi_get_power_info=lambda _: {
            "current_socket_power": "N/A",
            "average_socket_power": 550,
        },
        amdsmi_get_energy_count=lambda _: {
            "energy_accumulator": 2_000_000,
            "counter_resolution": 15.25,
        },
        amdsmi_get_clock_info=lambda _, kind: {"clk": {"gfx": 2100}[kind]},
        amdsmi_get_temp_metric=fail,
        amdsmi_get_gpu_total_ecc_count=lambda _: {
            "correctable_count": 1,
            "uncorrectable_count": 0,
        },
        amdsmi_get_gpu_asic_info=lambda _: {
            "market_name": "AMD Instinct MI300X",
            "target_graphics_version": "gfx942",
        },
        amdsmi_get_gpu_device_uuid=lambda g: f"uuid-{g}",
        amdsmi_get_gpu_driver_info=fail,
        amdsmi_get_gpu_device_bdf=lambda _: "0000:05:00.0",
        amdsmi_topo_get_link_type=lambda *_: {"hops": 1, "type": 2},
        AmdSmiClkType=SimpleNamespace(GFX="gfx"),
        AmdSmiLinkType={2: SimpleNamespace(name="AMDSMI_LINK_TYPE_XGMI")}.__getitem__,
    )
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    return smi


def test_amd_gpus_are_read_where_there_is_no_nvidia(amdsmi: SimpleNamespace) -> None:
    with Gpus() as gpus:
        assert gpus.read() == GpuReading(
            util_ratio=0.4,
            memory_bytes=2 * 2**30,
            power_w=1100,
            energy_j=61.0,
            sm_clock_mhz=2100,
            ecc_corrected_total=2,
            ecc_uncorrected_total=0,
            each_util_ratio=(0.4, None),
            each_memory_bytes=(2**30, 2**30),
        )
        assert gpus.links() == [["X", "XGMI"], ["XGMI", "X"]]
        (first, _) = gpus.facts()
    assert (first["name"], first["driver"]) == ("AMD Instinct MI300X", None)
    assert first["memory_bytes"] == 196_288 * 2**20
    assert first["compute_capability"] == "gfx942"


def test_amdsmi_that_cannot_begin_is_no_gpu(amdsmi: SimpleNamespace) -> None:
    amdsmi.amdsmi_init = fail
    with Gpus() as gpus:
        assert gpus.read() == GpuReading()


def test_nothing_is_imported_for_a_machine_without_an_amd_device(
    amdsmi: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amd, "DEVICE", tmp_path / "none")
    with Gpus() as gpus:
        assert gpus.read() == GpuReading()
