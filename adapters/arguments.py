"""`engine.args` to a command line, and the refusal of what an engine cannot take."""

from collections.abc import Mapping
from typing import Any

import msgspec

from harness.errors import ConfigError


def flag(key: str) -> str:
    """The flag of a key: `flash_attn` is `--flash-attn`, `c` is `-c`, `-np` stays."""
    if key.startswith("-"):
        return key
    return f"-{key}" if len(key) == 1 else f"--{key.replace('_', '-')}"


def flags(args: Mapping[str, Any]) -> list[str]:
    """Raw arguments as a command line, in their order.

    true: the flag alone; false: its `--no-` form; null: left out; a list: its values after the
    flag; a mapping: as JSON.
    """
    line: list[str] = []
    for key, value in args.items():
        name = flag(key)
        if value is True:
            line.append(name)
        elif value is False:
            line.append(f"--no-{name.lstrip('-')}")
        elif isinstance(value, Mapping):
            line += [name, msgspec.json.encode(dict(value)).decode()]
        elif isinstance(value, list | tuple):
            line += [name, *map(str, value)]
        elif value is not None:
            line += [name, str(value)]
    return line


def refuse(key: str, value: object, reason: str) -> ConfigError:
    """The error for a setting that an engine cannot take."""
    return ConfigError(f"{key}={value}: {reason}")


def refuse_owned(args: Mapping[str, Any], owned: Mapping[str, str]) -> None:
    """Raise ConfigError for a raw argument that a neutral key already sets.

    `owned`: flag (as `flag` gives it) to the key that sets it.
    """
    for key, value in args.items():
        if owner := owned.get(flag(key)):
            raise refuse(f"engine.args.{key}", value, f"is set by bakeoff; use {owner}")
