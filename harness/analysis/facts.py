"""What a run says of its machine and files, read from `RunInfo.facts` in one place.

Facts are written by the run and may lack any key; what is missing is None.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.types import RunInfo

_CPU_NOISE = re.compile(r"\((R|TM|r|tm)\)|\bCPU\b|\bProcessor\b|@.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The hardware of a run; `cpu_cores`: those it may use; `gpus`: the name of each."""

    cpu_model: str | None
    cpu_cores: int | None
    gpus: tuple[str, ...]

    @property
    def label(self) -> str:
        """Such as `2 x NVIDIA H200` or `Intel Xeon, 2 cores`; equal for equal machines."""
        if self.gpus:
            counts = ((self.gpus.count(kind), kind) for kind in dict.fromkeys(self.gpus))
            return " + ".join(f"{n} x {kind}" if n > 1 else kind for n, kind in counts)
        model = " ".join(_CPU_NOISE.sub("", self.cpu_model or "").split()) or "unknown CPU"
        unit = "core" if self.cpu_cores == 1 else "cores"
        return f"{model}, {self.cpu_cores} {unit}" if self.cpu_cores else model


def fact(info: RunInfo, path: str) -> Any:
    """One value of the facts by its dotted key; None if it is not there."""
    return _at(info.facts, path)


def setting(info: RunInfo, path: str, default: Any = None) -> Any:
    """One value of the run's configuration by its dotted key."""
    value = _at(info.config, path)
    return default if value is None else value


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def machine_of(info: RunInfo) -> Machine:
    """The machine of a run."""
    model = fact(info, "machine.cpu_model")
    allowed = fact(info, "machine.cores_allowed")
    cores = len(allowed) if allowed else fact(info, "machine.cores_logical")
    gpus = fact(info, "machine.gpus") or ()
    return Machine(
        cpu_model=None if model is None else str(model),
        cpu_cores=None if cores is None else int(cores),
        gpus=tuple(str(gpu.get("name") or "unknown GPU") for gpu in gpus),
    )


def model_sha256(info: RunInfo) -> str | None:
    """Hash of the model file."""
    value = fact(info, "model.sha256")
    return None if value is None else str(value)


def tokenizer_sha256(info: RunInfo) -> str | None:
    """Hash of the tokenizer that sized the prompts."""
    value = fact(info, "tokenizer.sha256")
    return None if value is None else str(value)
