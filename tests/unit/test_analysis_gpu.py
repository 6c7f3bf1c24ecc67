"""GPUs in a level's window: unevenly used, held back, energy a token, faulty memory."""

from pathlib import Path
from typing import Any

import pytest

from harness.analysis.cells import summarise
from harness.analysis.contract import must_match, run_mismatches
from harness.analysis.frame import request_frame, sample_frame
from harness.analysis.gpu_use import imbalance_ratio
from harness.analysis.validity import run_doubts
from harness.analysis.views import LevelView, level_view
from harness.testing.records import make_config, make_info, make_record, store_run
from harness.types import Doubt, EngineSample, HostSample, Level, Severity

GIB = 2**30


def sample(t_s: float, **gpu: Any) -> HostSample:
    return HostSample(t_s=t_s, cpu_total_ratio=0.1, **{f"gpu_{k}": v for k, v in gpu.items()})


def view_of(host: list[HostSample]) -> LevelView:
    return level_view(
        request_frame([make_record()]),
        Level(index=0, name="x", shape="users", users=1, window_end_s=10.0),
        engine=sample_frame([], EngineSample),
        host=sample_frame(host, HostSample),
    )


def test_imbalance_is_over_the_mean_of_each_gpus_window() -> None:
    host = [
        sample(1.0, each_util_ratio=(1.0, 0.4), each_memory_bytes=(GIB, GIB)),
        sample(2.0, each_util_ratio=(0.6, None), each_memory_bytes=(GIB, GIB)),
        sample(99.0, each_util_ratio=(0.0, 1.0), each_memory_bytes=(GIB, GIB)),
    ]
    assert imbalance_ratio(view_of(host)) == pytest.approx((0.8 - 0.4) / 0.6)


def test_gpus_without_a_part_of_the_model_are_left_out() -> None:
    idle = sample(1.0, each_util_ratio=(0.9, 0.8, 0.0), each_memory_bytes=(GIB, GIB, GIB // 20))
    assert imbalance_ratio(view_of([idle])) == pytest.approx(0.1 / 0.85)
    loaded = sample(1.0, each_util_ratio=(0.9, 0.9, 0.0), each_memory_bytes=(GIB, GIB, GIB))
    assert imbalance_ratio(view_of([loaded])) == pytest.approx(1.5)


@pytest.mark.parametrize(
    "host",
    [
        [],
        [sample(1.0)],
        [sample(1.0, each_util_ratio=(0.5,), each_memory_bytes=(GIB,))],
        [sample(1.0, each_util_ratio=(0.0, 0.0), each_memory_bytes=(GIB, GIB))],
        [sample(1.0, each_util_ratio=(None, None), each_memory_bytes=(None, None))],
    ],
    ids=["no sample", "no GPU", "one GPU", "idle", "not told"],
)
def test_without_two_gpus_at_work_there_is_no_imbalance(host: list[HostSample]) -> None:
    assert imbalance_ratio(view_of(host)) is None


def doubts_of(tmp_path: Path, *host: HostSample) -> dict[str, Doubt]:
    records = [
        make_record(i, due_s=i * 0.025, chunk_s=(i * 0.025 + 0.05, i * 0.025 + 0.06))
        for i in range(400)
    ]
    run = store_run(tmp_path, make_info(), records, host=host)
    return {doubt.code: doubt for doubt in run_doubts(run)}


def test_uneven_gpus_are_told(tmp_path: Path) -> None:
    found = doubts_of(tmp_path / "a", sample(1.0, each_util_ratio=(1.0, 0.5)))["gpu_imbalance"]
    assert found.severity is Severity.WARN
    assert found.what.startswith("the GPUs were used unevenly: 66.7 % of their mean")
    even = doubts_of(tmp_path / "b", sample(1.0, each_util_ratio=(1.0, 0.9)))
    assert "gpu_imbalance" not in even


def test_clocks_held_back_by_hardware_make_a_run_invalid(tmp_path: Path) -> None:
    host = [sample(1.0, throttle="hw_thermal_slowdown,sw_power_cap"), sample(2.0, throttle="")]
    found = doubts_of(tmp_path, *host)
    assert found["gpu_throttled"].severity is Severity.INVALID
    assert found["gpu_throttled"].what == (
        "the hardware held GPU clocks back in 50.0 % of the samples (hw_thermal_slowdown)"
    )
    assert found["gpu_power_capped"].severity is Severity.NOTE


def test_the_driver_weakens_and_the_power_limit_informs(tmp_path: Path) -> None:
    warm = doubts_of(tmp_path / "a", sample(1.0, throttle="sw_thermal_slowdown"))
    assert warm["gpu_throttled"].severity is Severity.WARN
    capped = doubts_of(tmp_path / "b", sample(1.0, throttle="application_clocks,sw_power_cap"))
    assert "gpu_throttled" not in capped
    assert capped["gpu_power_capped"].what.endswith("in 100 % of the samples")


def test_throttling_outside_the_window_and_untold_is_no_doubt(tmp_path: Path) -> None:
    host = [sample(99.0, throttle="hw_slowdown"), sample(1.0), sample(2.0, throttle="")]
    found = doubts_of(tmp_path, *host)
    assert not {code for code in found if code.startswith("gpu")}


def test_memory_errors_within_the_window_make_a_run_invalid(tmp_path: Path) -> None:
    host = [sample(t, ecc_uncorrected_total=n) for t, n in ((1.0, 3), (4.0, None), (9.0, 5))]
    found = doubts_of(tmp_path / "a", *host)["gpu_memory_errors"]
    assert (found.severity, found.what.split()[0]) == (Severity.INVALID, "2")
    same = doubts_of(tmp_path / "b", *[sample(t, ecc_uncorrected_total=3) for t in (1.0, 9.0)])
    assert "gpu_memory_errors" not in same


def test_energy_a_token_is_between_the_first_and_the_last_sample(tmp_path: Path) -> None:
    """400 answers of 2 tokens in 10 s: 80 tokens/s; 4,000 J in 5 s."""
    records = [
        make_record(i, due_s=i * 0.025, chunk_s=(i * 0.025 + 0.005, i * 0.025 + 0.01))
        for i in range(400)
    ]
    host = [
        sample(2.0, energy_j=1e6, power_w=700.0, sm_clock_mhz=1980, temperature_c=60),
        sample(4.0, power_w=900.0, sm_clock_mhz=1500, temperature_c=66, throttle="sw_power_cap"),
        sample(7.0, energy_j=1e6 + 4000),
    ]
    run = store_run(tmp_path, make_info(), records, host=host)
    (cell,) = summarise([run]).cells
    values = {name: estimate.value for name, estimate in cell.metrics.items()}
    assert values["energy_per_token_j"] == pytest.approx(4000 / 400)
    assert (values["gpu_power_w"], values["gpu_sm_clock_mhz"]) == (800.0, 1740.0)
    assert (values["gpu_temperature_c"], values["gpu_throttled_ratio"]) == (66.0, 1.0)


def test_a_counter_that_was_reset_gives_no_energy(tmp_path: Path) -> None:
    host = [sample(2.0, energy_j=1e6), sample(7.0, energy_j=5.0)]
    run = store_run(tmp_path, make_info(), [make_record()], host=host)
    (cell,) = summarise([run]).cells
    assert cell.metrics["energy_per_token_j"].value is None


def gpu_run(*, power_w: float = 700.0, tp: int = 1, link: str = "NV18") -> Any:
    gpu = {"name": "H200", "memory_bytes": 100, "power_limit_w": power_w, "ecc": True, "mig": None}
    machine = {"gpus": [gpu, gpu], "gpu_links": [["X", link], [link, "X"]]}
    config = make_config(engine={"tp": tp})
    return make_info(config=config, facts={"machine": machine})


def test_gpus_that_are_set_or_joined_otherwise_are_not_compared() -> None:
    assert run_mismatches(gpu_run(), gpu_run()) == ()
    (limit,) = must_match(run_mismatches(gpu_run(), gpu_run(power_w=450.0)))
    assert limit.text == (
        "GPU settings: 100 B, 700.0 W, True ECC, None MIG against "
        "100 B, 450.0 W, True ECC, None MIG"
    )
    assert must_match(run_mismatches(gpu_run(), gpu_run(link="SYS"))) == ()  # one GPU is used
    (links,) = must_match(run_mismatches(gpu_run(tp=2), gpu_run(tp=2, link="SYS")))
    assert links.text == "GPU links: X NV18; NV18 X against X SYS; SYS X"
