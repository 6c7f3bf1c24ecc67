from types import SimpleNamespace

import pynvml
import pytest

from harness.engine.gpu import GpuReading, Gpus
from harness.errors import EngineDiedError


def refuse(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML with two GPUs, the second of which tells no power and no MIG mode."""
    answers = {
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
        "nvmlDeviceGetPowerManagementLimit": lambda _: 700_000,
        "nvmlDeviceGetEccMode": lambda _: [1, 1],
        "nvmlDeviceGetMigMode": lambda h: refuse() if h else [0, 0],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)


def test_readings_are_the_mean_or_sum_of_what_is_told(two_gpus: None) -> None:
    with Gpus() as gpus:
        assert gpus.read() == GpuReading(util_ratio=0.75, memory_bytes=7, power_w=250.5)
    with Gpus([1]) as gpus:
        assert gpus.read() == GpuReading(util_ratio=1.0, memory_bytes=4, power_w=None)


def test_facts_have_none_for_what_is_not_told(two_gpus: None) -> None:
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
    }
    assert second["mig"] is None


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    with Gpus() as gpus:
        assert gpus.read() == GpuReading()
        assert gpus.facts() == []


def test_memory_must_come_back_after_an_engine(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = [900_000_000, 400_000_000]
    monkeypatch.setattr(
        pynvml,
        "nvmlDeviceGetMemoryInfo",
        lambda h: SimpleNamespace(used=used.pop(0) if len(used) > 1 else used[0], total=0),
    )
    with Gpus([0]) as gpus:
        gpus.check_released(None)
        gpus.check_released(200_000_000)  # 900 MB, then 400 MB: within the slack
        with pytest.raises(EngineDiedError) as caught:
            gpus.check_released(199_999_999, timeout_s=0)
    assert str(caught.value).startswith("GPU memory: 0.40 GB are still in use 0 s after")
    assert caught.value.exit_code == 5
