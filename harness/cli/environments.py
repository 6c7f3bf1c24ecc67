"""`engines list/install/remove`: the environments that engines run in."""

import sys
from dataclasses import dataclass, replace
from typing import cast

import msgspec
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from harness.config import EngineConf, RecipeConf
from harness.engine.environment import (
    Environment,
    ensure_environment,
    list_environments,
)
from harness.engine.environment import remove as remove_environments
from harness.errors import ConfigError
from harness.paths import conf_dir
from harness.registry import adapter_entry, adapter_names
from harness.units import byte_size


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One engine as `engines list` shows it."""

    name: str
    summary: str
    launch: tuple[str, ...]
    environments: tuple[str, ...]
    size_bytes: int | None
    can_install: bool


def _recipe(name: str) -> RecipeConf:
    """The recipe in `conf/engine/NAME.yaml`, with the default model's wheel."""
    adapter_entry(name)  # ConfigError with the choices for an unknown one
    path = conf_dir() / "engine" / f"{name}.yaml"
    if not path.is_file():
        return RecipeConf()
    merged = OmegaConf.merge(OmegaConf.structured(EngineConf), OmegaConf.load(path))
    return cast("EngineConf", OmegaConf.to_object(merged)).recipe


def _with_default_model(recipe: RecipeConf) -> RecipeConf:
    defaults = OmegaConf.load(conf_dir() / "config.yaml").defaults
    option = next(item.model for item in defaults if not isinstance(item, str) and "model" in item)
    package = OmegaConf.load(conf_dir() / "model" / f"{option}.yaml").package
    return replace(recipe, model_packages=[*recipe.model_packages, package]) if package else recipe


def print_engines(*, as_json: bool) -> int:
    """Every engine: what it is, how it can be launched, whether it is installed."""
    found = list_environments()
    rows = [_row(name, [item for item in found if item.name == name]) for name in adapter_names()]
    if as_json:
        print(msgspec.json.encode(rows).decode())
        return 0
    table = Table()
    for title in ("engine", "what it is", "launch", "environment"):
        table.add_column(title)
    for row in rows:
        table.add_row(row.name, row.summary, ", ".join(row.launch), _state(row))
    Console().print(table)
    return 0


def _row(name: str, environments: list[Environment]) -> EngineRow:
    entry = adapter_entry(name)
    return EngineRow(
        name=name,
        summary=entry.summary,
        launch=tuple(entry.launch),
        environments=tuple(str(item.folder) for item in environments),
        size_bytes=sum(item.size_bytes() for item in environments) if environments else None,
        can_install=bool(_recipe(name).packages),
    )


def _state(row: EngineRow) -> str:
    if row.environments:
        return f"installed, {byte_size(row.size_bytes)}"
    if row.can_install:
        return f"bakeoff engines install {row.name}"
    return "none needed: the server runs already"


def install(name: str) -> int:
    """Make the environment now; says where it is."""
    recipe = _recipe(name)
    if not recipe.packages:
        raise ConfigError(
            f"engine={name}: has no environment of its own; start its server yourself and use "
            "launch=attach launch.base_url=http://127.0.0.1:PORT"
        )
    made = ensure_environment(
        name, _with_default_model(recipe), progress=lambda text: print(text, file=sys.stderr)
    )
    print(f"{name}: {made.folder}")
    return 0


def remove(name: str) -> int:
    """Remove all environments of an engine."""
    adapter_entry(name)
    for folder in remove_environments(name):
        print(f"removed {folder}")
    return 0
