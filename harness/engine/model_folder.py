"""A model as a folder: whether it can be one, and what identifies it."""

import hashlib
import json
from pathlib import Path
from typing import Any

from harness.engine.converted import origin
from harness.engine.model_file import file_sha256, model_facts
from harness.errors import ConfigError

_CONFIG = "config.json"
_WEIGHTS = ("*.safetensors", "*.bin")


def check_model_folder(folder: Path) -> None:
    """ConfigError if an engine cannot find a model in this folder."""
    if not folder.is_dir():
        raise ConfigError(
            f"model.path={folder}: no such folder; give one with config.json and safetensors"
        )
    if not (folder / _CONFIG).is_file():
        raise ConfigError(f"model.path={folder}: has no config.json; is it a model's folder?")
    if not _weights(folder):
        raise ConfigError(
            f"model.path={folder}: has neither safetensors nor .bin weights; fetch the model again"
        )


def _weights(folder: Path) -> list[Path]:
    return next((found for kind in _WEIGHTS if (found := sorted(folder.glob(kind)))), [])


def identity_of(path: Path) -> dict[str, Any]:
    """What identifies a model in a run's record: name, size, SHA-256, format.

    A folder's hash covers its weights: that of the one file, or over those of all files in the
    order of their names. A folder that was made from another file says `derived_from`.
    """
    if path.is_file():
        return {**model_facts(path), "format": "GGUF"}
    weights = _weights(path)
    hashes = [file_sha256(one) for one in weights]
    whole = hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
    facts = {
        "file": path.name,
        "bytes": sum(one.stat().st_size for one in weights),
        "sha256": whole,
        "format": " ".join(filter(None, [weights[0].suffix.lstrip("."), dtype_of(path)])),
    }
    made = origin(path)
    return facts | ({"derived_from": made} if made else {})


def dtype_of(folder: Path) -> str | None:
    """The type of the weights' numbers by config.json (`dtype`, formerly `torch_dtype`)."""
    try:
        config = json.loads((folder / _CONFIG).read_bytes())
        found = config.get("dtype") or config.get("torch_dtype")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None
