"""The knobs of an emulated engine as options of a command line: one for each of its fields."""

import argparse
import re
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_type_hints

from harness.config import EmulateConf
from harness.errors import ConfigError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add one option for each knob, such as `--step-ms 20` and `--no-chunked-prefill`."""
    hints, default = get_type_hints(EmulateConf), EmulateConf()
    for name, what in EmulateConf.described().items():
        kind, start = _plain(hints[name]), getattr(default, name)
        shown = what if start is None else f"{what} (default: {start})"
        more: dict[str, Any] = {"type": kind, "metavar": kind.__name__.upper()}
        if kind is bool:
            more = {"action": argparse.BooleanOptionalAction}
        parser.add_argument(_option(name), default=start, help=shown.replace("%", "%%"), **more)


def _plain(hint: Any) -> type:
    """`int` of `int | None`."""
    kind = get_args(hint)[0] if isinstance(hint, UnionType) else hint
    assert isinstance(kind, type)
    return kind


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def read_options(options: argparse.Namespace) -> EmulateConf:
    """The knobs that a command line has set; ConfigError for a value that cannot be."""
    given = {one.name: getattr(options, one.name) for one in fields(EmulateConf)}
    try:
        return EmulateConf(**given)
    except ConfigError as error:
        message = re.sub(r"launch\.emulate\.(\w+)", lambda key: _option(key[1]), str(error))
        raise ConfigError(message) from error


def written_options(conf: EmulateConf) -> list[str]:
    """The command line that gives these knobs; what stands at its default is left out."""
    words, default = [], EmulateConf()
    for one in fields(EmulateConf):
        value = getattr(conf, one.name)
        if value == getattr(default, one.name):
            continue
        if isinstance(value, bool):
            words.append(_option(one.name) if value else _option(f"no_{one.name}"))
        else:
            words += [_option(one.name), repr(value)]
    return words
