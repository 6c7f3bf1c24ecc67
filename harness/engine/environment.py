"""Engine environments: a Python of its own for each engine, made by `uv` in the user's cache.

An environment is named by its engine and the hash of its recipe, so a changed pin makes a new
one. It counts as whole only with its marker file, which is written last, atomically.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.config import RecipeConf
from harness.engine.installer import Installer
from harness.errors import ConfigError, EnvironmentInstallError
from harness.paths import cache_dir

MARKER = "bakeoff.json"
_HASH_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A whole environment: its interpreter, where its packages lie, and its folder.

    `install_s`: what it took to make; None where that was not noted.
    """

    name: str
    python: Path
    site_packages: Path
    folder: Path
    packages: tuple[str, ...] = ()
    install_s: float | None = None

    def size_bytes(self) -> int:
        """What its files take on disk; files that are linked elsewhere count in full."""
        return sum(p.lstat().st_size for p in self.folder.rglob("*") if not p.is_dir())


def environments_dir() -> Path:
    """Where the environments lie: `engines/` in the user's cache."""
    return cache_dir() / "engines"


def recipe_hash(recipe: RecipeConf) -> str:
    """The recipe's content with the Python that it means, as 12 hex digits."""
    here = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"
    content = asdict(recipe) | {"python": recipe.python or here}
    content.pop("compute_capability")  # of the machine, not of what is installed
    text = json.dumps(content, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:_HASH_DIGITS]


def expected_folder(name: str, recipe: RecipeConf) -> Path:
    """Where the environment of this recipe lies, or will; ConfigError for no plain name."""
    if Path(name).name != name or name.startswith("."):
        raise ConfigError(f"engine={name}: must be a plain name, without slashes")
    return environments_dir() / f"{name}-{recipe_hash(recipe)}"


def _read(folder: Path) -> Environment | None:
    """The environment in a folder; None if it is not whole, or its base Python has gone."""
    try:
        marker = json.loads((folder / MARKER).read_bytes())
        name, packages = str(marker["name"]), tuple(map(str, marker["packages"]))
        took_s = marker.get("install_s")
    except (OSError, ValueError, LookupError, TypeError):
        return None
    python = folder / "bin" / "python"
    site_packages = next(iter(sorted(folder.glob("lib/python*/site-packages"))), None)
    if site_packages is None or not python.exists():
        return None
    return Environment(
        name=name,
        python=python,
        site_packages=site_packages,
        folder=folder,
        packages=packages,
        install_s=took_s if isinstance(took_s, float) else None,
    )


def installed(name: str, recipe: RecipeConf) -> Environment | None:
    """The engine's environment for this recipe, or None if it is not installed."""
    return _read(expected_folder(name, recipe))


def list_environments() -> list[Environment]:
    """Every whole environment in the cache, sorted by folder name."""
    folders = sorted(environments_dir().glob("*/"))
    return [found for folder in folders if (found := _read(folder)) is not None]


@contextlib.contextmanager
def _maker_lock(folder: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """One maker at a time for a folder; others wait, and find it made."""
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting: another process makes {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure_environment(
    name: str, recipe: RecipeConf, *, progress: Callable[[str], None]
) -> Environment:
    """The engine's environment, installed if it is missing; `progress` is told each step.

    Raises EnvironmentInstallError with uv's reason and the command that tries again.
    """
    if (found := installed(name, recipe)) is not None:
        return found
    if not recipe.packages and not recipe.model_packages:
        raise EnvironmentInstallError(
            f"engine={name}: engine.recipe.packages is empty, there is nothing to install; "
            "start the server yourself and use launch=attach launch.base_url=http://HOST:PORT"
        )
    folder = expected_folder(name, recipe)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _maker_lock(folder, progress):
            made = _read(folder) or _make(name, recipe, folder, progress)
    except OSError as error:
        raise EnvironmentInstallError(
            f"engine={name}: {folder}: {error.strerror or error}; "
            f"mend that, then run: bakeoff engines install {name}"
        ) from error
    return made


def _make(
    name: str, recipe: RecipeConf, folder: Path, progress: Callable[[str], None]
) -> Environment:
    start_s = time.monotonic()
    progress(f"installing engine={name} into {folder}")
    installer = Installer(name, folder, progress)
    installer.make_venv(recipe.python or sys.executable)
    overrides = None
    if recipe.overrides:
        overrides = folder / "overrides.txt"
        overrides.write_text("\n".join(recipe.overrides) + "\n", encoding="utf-8")
    installer.install(recipe.packages, overrides=overrides)
    installer.install(recipe.model_packages, alone=True)
    content = {
        "name": name,
        "packages": [*recipe.packages, *recipe.model_packages],
        "install_s": time.monotonic() - start_s,
    }
    part = folder / f".{MARKER}.part"
    with part.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / MARKER)
    made = _read(folder)
    if made is None:
        raise EnvironmentInstallError(
            f"engine={name}: {folder} was made but has no usable Python; "
            f"remove it and run: bakeoff engines install {name}"
        )
    return made


def remove(name: str) -> list[Path]:
    """Remove all environments of an engine, half-made ones too; returns their folders.

    ConfigError if there is none.
    """
    root = environments_dir()
    digits = "[0-9a-f]" * _HASH_DIGITS
    folders = sorted(root.glob(f"{name}-{digits}/")) if Path(name).name == name else []
    if not folders:
        have = ", ".join(sorted({found.name for found in list_environments()})) or "none"
        raise ConfigError(f"engine={name}: no environment is installed; installed are: {have}")
    for folder in folders:
        try:
            (folder / MARKER).unlink(missing_ok=True)  # first: a cut removal leaves no whole one
            shutil.rmtree(folder)
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be removed: {error.strerror}") from error
    return folders
