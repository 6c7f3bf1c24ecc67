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
    """The hardware of a run. `label`: in a few words; `gpus`: the name of each."""

    label: str
    cpu_model: str | None
    cpu_cores: int | None
    gpus: tuple[str, ...]


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
    """The machine of a run; cores are those that the run was allowed to use."""
    model, allowed = fact(info, "machine.cpu_model"), fact(info, "machine.cores_allowed")
    gpus = fact(info, "machine.gpus") or ()
    return Machine(
        label=str(fact(info, "machine.label") or model or "unknown machine"),
        cpu_model=None if model is None else str(model),
        cpu_cores=None if allowed is None else len(allowed),
        gpus=tuple(str(gpu.get("name", "?")) for gpu in gpus),
    )


def gpu_setting(info: RunInfo) -> str | None:
    """How the GPUs are set: memory, power limit, ECC and MIG of each kind; None if none tells."""
    names = {"memory_bytes": "B", "power_limit_w": "W", "ecc": "ECC", "mig": "MIG"}
    each = [
        ", ".join(f"{gpu.get(key)} {unit}" for key, unit in names.items())
        for gpu in fact(info, "machine.gpus") or ()
        if any(gpu.get(key) is not None for key in names)
    ]
    return " + ".join(dict.fromkeys(each)) or None


def gpu_links(info: RunInfo) -> str | None:
    """How the machine's GPUs are joined, where an engine uses several; None for one."""
    used = int(setting(info, "engine.tp", 1)) * int(setting(info, "engine.pp", 1))
    rows = fact(info, "machine.gpu_links") or () if used > 1 else ()
    return "; ".join(" ".join(row) for row in rows) or None


def kv_capacity_tokens(info: RunInfo) -> int | None:
    """What the KV cache holds: as the running server says, else its log; None if neither does."""
    return info.identity.kv_capacity_tokens or info.log.kv_capacity_tokens


def slots(info: RunInfo) -> int | None:
    """How many requests run at once: as the server says, else as it was told; None: not known."""
    return info.identity.max_running or setting(info, "engine.max_running")


def model_sha256(info: RunInfo) -> str | None:
    """Hash of the model file."""
    value = fact(info, "model.sha256")
    return None if value is None else str(value)


def origin_sha256(info: RunInfo) -> str | None:
    """Hash of the file that the model was made from; its own where it was not converted."""
    value = fact(info, "model.derived_from.sha256")
    return model_sha256(info) if value is None else str(value)


def weights(info: RunInfo) -> str | None:
    """In what form the weights are, and what the engine was told to make of their numbers.

    Told to take them as they are, it was told nothing.
    """
    form = fact(info, "model.format")
    if form is None and str(fact(info, "model.file") or "").endswith(".gguf"):
        form = "GGUF"  # older runs do not say it
    told = [
        f"{key}={value}"
        for key in ("dtype", "quantization", "kv_dtype")
        if (value := setting(info, f"engine.{key}")) is not None
        and not (key == "dtype" and str(form).endswith(f" {value}"))
    ]
    return ", ".join([str(form), *told]) if form is not None else ", ".join(told) or None


def tokenizer_sha256(info: RunInfo) -> str | None:
    """Hash of the tokenizer that sized the prompts."""
    value = fact(info, "tokenizer.sha256")
    return None if value is None else str(value)
