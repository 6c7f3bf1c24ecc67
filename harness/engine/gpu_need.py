"""Whether this machine has the GPU that an engine needs, in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.config import EngineConf, LaunchMode


def gpu_problem(
    engine: EngineConf, mode: LaunchMode, gpus: Sequence[Mapping[str, Any]]
) -> str | None:
    """What is missing, such as `needs an NVIDIA GPU of compute capability >= 8.0; none found`.

    None if nothing is. `gpus`: the machine's facts of them. A program of the user's own, and a
    GPU that does not tell its capability, are not judged.
    """
    least = engine.recipe.compute_capability
    if mode is LaunchMode.DOCKER:
        needs = engine.image is not None and engine.image.needs_gpu
        return "needs a GPU; none found" if needs and not gpus else None
    if mode is not LaunchMode.PROCESS or engine.program or least is None:
        return None
    what = f"needs an NVIDIA GPU of compute capability >= {least:.1f}"
    if not gpus:
        return f"{what}; none found"
    known = [(str(gpu.get("name")), _number(gpu.get("compute_capability"))) for gpu in gpus]
    if any(capability is None or capability >= least for _, capability in known):
        return None
    return f"{what}; found {', '.join(f'{name} ({value:.1f})' for name, value in known)}"


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
