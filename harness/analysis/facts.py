"""What a run says of its machine and files, read from `RunInfo.facts` in one place.

Facts are written by the run and may lack any key; what is missing is None.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.types import RunInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The hardware of a run; `gpus`: the name of each."""

    cpu_model: str | None
    cpu_cores: int | None
    gpus: tuple[str, ...]

    @property
    def label(self) -> str:
        """Such as `2 x NVIDIA H200` or `Intel Xeon, 2 cores`."""
        if self.gpus:
            names = sorted(set(self.gpus))
            return ", ".join(f"{self.gpus.count(name)} x {name}" for name in names)
        cores = "" if self.cpu_cores is None else f", {self.cpu_cores} cores"
        return f"{self.cpu_model or 'unknown CPU'}{cores}"


def fact(info: RunInfo, *paths: str) -> Any:
    """The first of these dotted keys of the facts that has a value; else None."""
    for path in paths:
        value: Any = info.facts
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def setting(info: RunInfo, path: str, default: Any = None) -> Any:
    """One value of the run's configuration by its dotted key."""
    value: Any = info.config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return default if value is None else value


def machine_of(info: RunInfo) -> Machine:
    """The machine of a run."""
    model = fact(info, "machine.cpu_model", "cpu_model")
    cores = fact(info, "machine.cpu_cores", "cpu_cores")
    gpus = fact(info, "machine.gpus", "gpus") or ()
    names = [gpu.get("name", "?") if isinstance(gpu, Mapping) else gpu for gpu in gpus]
    return Machine(
        cpu_model=None if model is None else str(model),
        cpu_cores=None if cores is None else int(cores),
        gpus=tuple(str(name) for name in names),
    )


def model_sha256(info: RunInfo) -> str | None:
    """Hash of the model file."""
    value = fact(info, "model.sha256", "model_sha256")
    return None if value is None else str(value)


def tokenizer_sha256(info: RunInfo) -> str | None:
    """Hash of the tokenizer that sized the prompts."""
    value = fact(info, "tokenizer.sha256", "tokenizer_sha256")
    return None if value is None else str(value)
