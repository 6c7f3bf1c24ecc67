from typing import Any

import pytest

from harness.config import EngineConf, ImageConf, LaunchMode, RecipeConf
from harness.engine.gpu_need import gpu_problem

LEAST = "needs an NVIDIA GPU of compute capability >= 8.0"
T4 = {"name": "Tesla T4", "compute_capability": "7.5"}
H200 = {"name": "NVIDIA H200", "compute_capability": "9.0"}
ODD = {"name": "unknown", "compute_capability": None}


def engine(**settings: Any) -> EngineConf:
    return EngineConf(name="x", recipe=RecipeConf(compute_capability=8.0), **settings)


@pytest.mark.parametrize(
    ("gpus", "problem"),
    [
        ([], f"{LEAST}; none found"),
        ([T4, T4], f"{LEAST}; found Tesla T4 (7.5), Tesla T4 (7.5)"),
        ([T4, H200], None),
        ([ODD], None),
    ],
)
def test_an_environment_needs_its_gpu(gpus: list[dict[str, Any]], problem: str | None) -> None:
    assert gpu_problem(engine(), LaunchMode.PROCESS, gpus) == problem


def test_a_server_of_ones_own_a_stand_in_and_an_engine_for_cpus_need_none() -> None:
    assert gpu_problem(engine(program="/x"), LaunchMode.PROCESS, []) is None
    assert gpu_problem(EngineConf(name="x"), LaunchMode.PROCESS, []) is None
    for mode in (LaunchMode.ATTACH, LaunchMode.EMULATE):
        assert gpu_problem(engine(), mode, []) is None


def test_a_container_is_judged_by_its_image() -> None:
    assert gpu_problem(engine(), LaunchMode.DOCKER, []) == "needs a GPU; none found"
    assert gpu_problem(engine(), LaunchMode.DOCKER, [T4]) is None
    on_cpus = engine(image=ImageConf(reference="a:1", needs_gpu=False))
    assert gpu_problem(on_cpus, LaunchMode.DOCKER, []) is None
