"""Engine names to adapter classes; an adapter is imported when it is chosen, and only that one."""

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

import adapters
import harness
from adapters import ADAPTERS, Entry
from harness.adapter import Adapter
from harness.config import EngineConf, LaunchMode, ModelConf
from harness.errors import ConfigError

ENTRY_POINT_GROUP = "bakeoff.adapters"


def check_adapters_package(ours: str | None = None, theirs: str | None = None) -> None:
    """Raise ConfigError if `adapters` is another package of that name (there is one on PyPI).

    `ours`, `theirs`: the `__file__` of `harness` and of `adapters`.
    """
    home = Path(ours or harness.__file__ or "").parent.parent
    found = Path(theirs or adapters.__file__ or "")
    if found.parent.parent != home:
        raise ConfigError(
            f"adapters: {found} is another package of that name, not bakeoff's (beside {home}); "
            "install bakeoff in an environment of its own"
        )


def _outside() -> dict[str, EntryPoint]:
    """Adapters of other installed packages; ConfigError if one takes a name that is taken."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name in ADAPTERS or (point.name in found and found[point.name] != point):
            raise ConfigError(
                f"engine={point.name}: the entry point {point.value!r} of an installed package "
                "takes a name that is taken; uninstall that package or have it choose another"
            )
        found[point.name] = point
    return found


def adapter_names() -> tuple[str, ...]:
    """All engines that can be chosen, ours and those of installed packages, sorted."""
    return tuple(sorted({*ADAPTERS, *_outside()}))


def adapter_entry(name: str) -> Entry:
    """The table row of an engine; one from outside may be launched in every mode."""
    check_adapters_package()
    if name in ADAPTERS:
        return ADAPTERS[name]
    outside = _outside()
    if name not in outside:
        choices = ", ".join(sorted({*ADAPTERS, *outside}))
        raise ConfigError(f"engine={name}: not known; choose one of: {choices}")
    point = outside[name]
    package = point.dist.name if point.dist else "an installed package"
    modes = tuple(mode.value for mode in LaunchMode)
    return Entry(target=point.value, summary=f"from {package}", launch=modes)


def adapter_class(name: str) -> type[Adapter]:
    """Import one adapter; ConfigError names the choices, or why the import failed."""
    module, _, attribute = adapter_entry(name).target.partition(":")
    try:
        return cast("type[Adapter]", getattr(import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"engine={name}: {module}:{attribute} has no import: {error}") from error


def open_adapter(engine: EngineConf, model: ModelConf, mode: LaunchMode) -> Adapter:
    """Make the adapter of a configuration; ConfigError for a launch mode that it has not."""
    allowed = adapter_entry(engine.name).launch
    if mode.value not in allowed:
        raise ConfigError(
            f"launch.mode={mode.value}: engine={engine.name} can only be used with "
            f"launch={' or '.join(allowed)}; {_instead(mode)}"
        )
    return adapter_class(engine.name)(engine, model)


def _instead(mode: LaunchMode) -> str:
    if mode is LaunchMode.EMULATE:
        names = [name for name, entry in ADAPTERS.items() if mode.value in entry.launch]
        return f"these can be emulated: {', '.join(names)}"
    return "start it yourself and give launch=attach launch.base_url=http://127.0.0.1:PORT"
