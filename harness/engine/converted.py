"""A GGUF model as a folder of safetensors, made once with an engine's own Python and kept.

The folder is named by the file's hash and the type of its numbers; its note says what it was
made from and with. It counts as whole only with that note, which is written last.
"""

import fcntl
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.engine.model_file import file_sha256
from harness.errors import ConfigError, EnvironmentInstallError
from harness.paths import cache_dir

NOTE = "bakeoff.json"
DEFAULT_DTYPE = "float32"  # holds what a quantised block means exactly
_SCRIPT = Path(__file__).parent.parent.parent / "adapters" / "servers" / "gguf_to_safetensors.py"
_HASH_DIGITS = 16


def converted_path(gguf: Path, dtype: str) -> Path:
    """Where the folder of this file lies or will lie."""
    return cache_dir() / "models" / f"{gguf.stem}-{file_sha256(gguf)[:_HASH_DIGITS]}-{dtype}"


def origin(folder: Path) -> dict[str, Any] | None:
    """What a folder was made from: `file`, `sha256`, `dtype`, `made_with`; None for any other."""
    try:
        note: dict[str, Any] = json.loads((folder / NOTE).read_bytes())
        return note if {"file", "sha256", "dtype", "made_with"} <= set(note) else None
    except (OSError, ValueError, TypeError):
        return None


def converted(
    gguf: Path, dtype: str, *, python: Path | None, progress: Callable[[str], None]
) -> Path:
    """The folder for this file; made with `python` if it is not there yet.

    ConfigError if it would have to be made and there is no Python to make it with;
    EnvironmentInstallError says why it cannot be made.
    """
    folder = converted_path(gguf, dtype)
    if origin(folder) is not None:
        return folder
    if python is None:
        raise ConfigError(
            f"model.path={gguf}: a GGUF file, but this engine reads a folder with config.json and "
            "safetensors; give such a folder, or have one made: bakeoff engines install "
            "transformers"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f".{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if origin(folder) is None:
                _make(gguf, dtype, folder, python, progress)
    except OSError as error:
        raise EnvironmentInstallError(
            f"{folder}: {error.strerror or error}; mend that, then run the same command again"
        ) from error
    return folder


def _make(
    gguf: Path, dtype: str, folder: Path, python: Path, progress: Callable[[str], None]
) -> None:
    progress(f"writing {gguf.name} as {dtype} safetensors into {folder}")
    part = folder.with_name(f"{folder.name}.part")
    for old in (part, folder):
        shutil.rmtree(old, ignore_errors=True)
    command = [str(python), str(_SCRIPT), str(gguf), str(part), "--dtype", dtype]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        raise EnvironmentInstallError(
            f"model.path={gguf}: cannot be written as safetensors: "
            f"{lines[-1] if lines else f'ended with {ended.returncode}'}; "
            "give model.path a folder with config.json and safetensors"
        )
    made = json.loads(ended.stdout.splitlines()[-1])
    note = {"file": gguf.name, "sha256": file_sha256(gguf), **made}
    (part / NOTE).write_text(json.dumps(note), encoding="utf-8")
    part.replace(folder)
