"""How much memory a model needs, and how many sequences fit: `bakeoff size`.

Sizes come from the model's own files: tensor bytes of a GGUF or safetensors file, and the shape
of its attention. Compare the result with what the engine reports once it runs.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis.kv import KvGroup, kv_groups_of_config, kv_groups_of_gguf
from harness.errors import ConfigError

_GGUF_MAGIC = b"GGUF"
_BLOCK_TOKENS = 16  # vLLM's page; a last page is on average half empty
_SAFETENSORS_HEADER_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What a model needs of a memory.

    `weights_bytes`: None if the files do not tell. `kv_bytes_per_token`: of one sequence that
    has not outgrown a sliding window. `sequence_bytes`: one sequence of `context_tokens`, in
    whole blocks. `pool_bytes`: what is left for sequences; `sequences`: how many fit, 0 or more;
    both None without the weights. `notes`: what the numbers leave out.
    """

    model: str
    weights_bytes: int | None
    kv_bytes_per_token: float
    context_tokens: int
    sequence_bytes: int
    memory_bytes: int
    memory_fraction: float
    pool_bytes: int | None
    sequences: int | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a model's files say. `weights_bytes`: of all tensors; None if they do not tell."""

    name: str
    weights_bytes: int | None
    groups: tuple[KvGroup, ...]

    @property
    def kv_bytes_per_token(self) -> float:
        """All layers together, before any window is outgrown."""
        return sum(group.layers * group.token_bytes for group in self.groups)


def size(
    path: Path,
    *,
    memory_bytes: int,
    context_tokens: int,
    kv_dtype_bytes: float = 2,
    memory_fraction: float = 0.9,
    other_bytes: int = 0,
    block_tokens: int = _BLOCK_TOKENS,
) -> MemoryPlan:
    """Plan the memory of one model on one device.

    sequences = floor((memory x fraction - weights - other) / sequence bytes). `path`: a GGUF
    file, a config.json, or a folder with one. `kv_dtype_bytes`: bytes of a cached element, 2 for
    bf16 and f16, 1 for fp8. `other_bytes`: activations, graphs, communication. ConfigError if
    the file is neither or a number is out of range.
    """
    _check(memory_bytes, context_tokens, kv_dtype_bytes, memory_fraction)
    model = shape_of(path, kv_dtype_bytes)
    each = math.ceil(
        sum(group.sequence_bytes(context_tokens, block_tokens) for group in model.groups)
    )
    pool = None
    if model.weights_bytes is not None:
        pool = int(memory_bytes * memory_fraction) - model.weights_bytes - other_bytes
    return MemoryPlan(
        model=model.name,
        weights_bytes=model.weights_bytes,
        kv_bytes_per_token=model.kv_bytes_per_token,
        context_tokens=context_tokens,
        sequence_bytes=each,
        memory_bytes=memory_bytes,
        memory_fraction=memory_fraction,
        pool_bytes=None if pool is None else max(0, pool),
        sequences=None if pool is None else max(0, pool // each),
        notes=_notes(model, other_bytes, block_tokens),
    )


def _notes(model: ModelShape, other_bytes: int, block_tokens: int) -> tuple[str, ...]:
    notes = [f"a sequence takes whole blocks of {block_tokens} tokens"]
    if other_bytes == 0:
        notes.append("activations, graphs and communication buffers are not counted")
    if model.weights_bytes is None:
        notes.append("the weights' size is unknown: no safetensors file lies beside config.json")
    return tuple(notes)


def _check(
    memory_bytes: int, context_tokens: int, kv_dtype_bytes: float, memory_fraction: float
) -> None:
    for name, value in (
        ("memory_bytes", memory_bytes),
        ("context_tokens", context_tokens),
        ("kv_dtype_bytes", kv_dtype_bytes),
    ):
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name}={value}: must be a finite number > 0")
    if not 0 < memory_fraction <= 1:
        raise ConfigError(f"memory_fraction={memory_fraction}: must be in (0, 1]")


def shape_of(path: Path, kv_dtype_bytes: float) -> ModelShape:
    """Weights and cache of a GGUF file, a config.json, or a folder with one; else ConfigError."""
    if path.is_dir():
        path = path / "config.json"
    try:
        with path.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}; give a GGUF file, or a folder with the "
            "model's config.json"
        ) from error
    if path.suffix == ".json":
        return _read_config(path, kv_dtype_bytes)
    if magic != _GGUF_MAGIC:
        raise ConfigError(f"{path}: not a GGUF file: starts with {magic!r} instead of b'GGUF'")
    return _read_gguf(path, kv_dtype_bytes)


def _read_gguf(path: Path, kv_dtype_bytes: float) -> ModelShape:
    from gguf import GGUFReader  # noqa: PLC0415 heavy, only here

    try:
        reader = GGUFReader(path)
        tensors = sum(int(tensor.n_bytes) for tensor in reader.tensors)
        values = {
            name: field.contents()
            for name, field in reader.fields.items()
            if not name.startswith("tokenizer.")
        }
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise ConfigError(f"{path}: a damaged GGUF file ({error}); fetch it again") from error
    groups = kv_groups_of_gguf(values, kv_dtype_bytes)
    return ModelShape(
        name=str(values.get("general.name") or path.stem), weights_bytes=tensors, groups=groups
    )


def _read_config(path: Path, kv_dtype_bytes: float) -> ModelShape:
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(config, Mapping):
        raise ConfigError(f"{path}: not a model's config.json: holds no object")
    name = str(config.get("_name_or_path") or path.parent.name)
    groups = kv_groups_of_config(config, kv_dtype_bytes)
    return ModelShape(name=name, weights_bytes=_safetensors_bytes(path.parent), groups=groups)


def _safetensors_bytes(folder: Path) -> int | None:
    """Tensor bytes of a model folder: from its index, else of its files without their headers."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        total: Any = json.loads(index.read_bytes()).get("metadata", {}).get("total_size")
        if total:
            return int(total)
    files = sorted(folder.glob("*.safetensors"))
    return sum(_tensor_bytes(file) for file in files) or None


def _tensor_bytes(path: Path) -> int:
    with path.open("rb") as file:
        header = int.from_bytes(file.read(_SAFETENSORS_HEADER_BYTES), "little")
    return path.stat().st_size - _SAFETENSORS_HEADER_BYTES - header
