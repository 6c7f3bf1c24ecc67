"""A model file on disk: whether it can be what it should be, and its hash, kept once computed."""

import hashlib
import json
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.paths import cache_dir

GGUF_MAGIC = b"GGUF"  # ggml's docs/gguf.md, "File Structure"
_SHOWN_BYTES = 8


def check_model_file(path: Path) -> None:
    """ConfigError if this cannot be a GGUF model: missing, a folder, empty, wrong first bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(_SHOWN_BYTES)
    except FileNotFoundError as error:
        raise ConfigError(
            f"model.path={path}: no such file; give the path of a .gguf file"
        ) from error
    except IsADirectoryError as error:
        raise ConfigError(
            f"model.path={path}: a folder; give the path of a .gguf file in it"
        ) from error
    except OSError as error:
        raise ConfigError(f"model.path={path}: cannot be read: {error.strerror}") from error
    if not head:
        raise ConfigError(f"model.path={path}: an empty file; fetch the model again")
    if not head.startswith(GGUF_MAGIC):
        raise ConfigError(
            f"model.path={path}: not a GGUF file: it begins with {head!r}, not {GGUF_MAGIC!r}; "
            "give a .gguf file, or fetch it again if the download was cut or redirected"
        )


def _remembered(note: Path, key: dict[str, Any]) -> str | None:
    try:
        content = json.loads(note.read_bytes())
        return str(content["sha256"]) if content["key"] == key else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _remember(note: Path, key: dict[str, Any], sha256: str) -> None:
    part = note.with_suffix(".part")
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"key": key, "sha256": sha256}), encoding="utf-8")
        part.replace(note)
    except OSError:
        return  # a cache that cannot be written only costs the time to hash again


def file_sha256(path: Path) -> str:
    """The file's SHA-256, in hex; computed once for a path with its size and time of change.

    ConfigError if the file cannot be read.
    """
    try:
        status = path.stat()
        key = {"path": str(path.resolve()), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
        name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
        note = cache_dir() / "hashes" / f"{name}.json"
        if (known := _remembered(note, key)) is not None:
            return known
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    _remember(note, key, sha256)
    return sha256


def model_facts(path: Path) -> dict[str, Any]:
    """What identifies a model file in a run's record: its name, size and hash."""
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": file_sha256(path),
    }
