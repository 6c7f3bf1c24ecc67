"""What a model's own files say of the memory it needs, for the record of a run."""

from functools import cache
from pathlib import Path
from typing import Any

from harness.analysis.memory import shape_of
from harness.errors import ConfigError

_ELEMENT_BYTES = 2  # f16 and bf16; another kv_dtype is reckoned with where it is read


def memory_facts(path: Path | None) -> dict[str, Any]:
    """`weights_bytes` and `kv_bytes_per_token` at 2 bytes an element; each absent if unknown.

    `path`: a GGUF file, or a folder with config.json; None: the model is not ours.
    """
    return dict(_facts(path)) if path is not None else {}


@cache  # all jobs of a sweep share it, and a large vocabulary takes a second to read past
def _facts(path: Path) -> tuple[tuple[str, int], ...]:
    try:
        shape = shape_of(path, _ELEMENT_BYTES)
    except (ConfigError, OSError):
        return ()
    weights = () if shape.weights_bytes is None else (("weights_bytes", shape.weights_bytes),)
    return (*weights, ("kv_bytes_per_token", round(shape.kv_bytes_per_token)))
