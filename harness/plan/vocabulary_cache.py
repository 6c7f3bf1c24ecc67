"""Rebuilt vocabularies, kept under the user's cache by the hash of the file they came from."""

import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

from harness.errors import ConfigError
from harness.plan.vocabulary import Vocabulary, read_vocabulary

_FORMAT = 1  # raise when the rebuilding changes, so that what was kept is built anew
_HASHED_BYTES = 64 << 20


def cache_folder() -> Path:
    """`bakeoff/tokenizers` under `$BAKEOFF_CACHE`, else `$XDG_CACHE_HOME`, else `~/.cache`."""
    root = os.environ.get("BAKEOFF_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "bakeoff" / "tokenizers"


def vocabulary_key(path: Path) -> str:
    """What identifies a GGUF's vocabulary: SHA-256 of its first 64 MiB and its size.

    The vocabulary stands before the weights, which can be hundreds of gigabytes and say nothing
    about it.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256(file.read(_HASHED_BYTES))
            digest.update(str(os.fstat(file.fileno()).st_size).encode())
    except OSError as error:
        raise ConfigError(
            f"model.path={path}: cannot be read ({error.strerror}); give the model's file"
        ) from error
    return digest.hexdigest()


def cached_vocabulary(path: Path, folder: Path | None = None) -> Vocabulary:
    """The vocabulary of a GGUF file, rebuilt only if `folder` does not hold it yet.

    Args:
        path: the GGUF file.
        folder: where to keep it; None for `cache_folder()`.

    Raises:
        ConfigError: the file cannot be read, or is not GGUF.
    """
    kept = (folder or cache_folder()) / f"{vocabulary_key(path)}-{_FORMAT}.json"
    try:
        return msgspec.json.decode(kept.read_bytes(), type=Vocabulary)
    except (OSError, msgspec.DecodeError):
        built = read_vocabulary(path)
    _keep(kept, msgspec.json.encode(built))
    return built


def _keep(path: Path, content: bytes) -> None:
    """Write in one step, so that two runs at once never read a half file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except OSError:
        return  # a cache that cannot be written costs time, not the run
