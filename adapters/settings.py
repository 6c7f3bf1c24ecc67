"""Neutral settings in an engine's own words: one row for each key, so that nothing is dropped.

An adapter's table maps every name of `harness.config.SETTINGS` to a row. A row turns the value
into words, or refuses it with the engine's reason. Keys that are not set say nothing: the engine
then does what it does by itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from adapters.arguments import refuse, refuse_owned
from harness.config import SETTINGS, EngineConf


class CannotError(Exception):
    """A value that the engine cannot take; carries the reason. Becomes a ConfigError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What an engine is told. `options`: for a file or for keyword arguments, may be nested."""

    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __add__(self, other: "Words") -> "Words":
        return Words(
            argv=self.argv + other.argv,
            env={**self.env, **other.env},
            options=_merged(self.options, other.options),
        )


def _merged(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(left)
    for key, value in right.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(old, value) if both and old is not None else value
    return merged


NOTHING = Words()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting. `flags`: every flag that says it, which raw arguments then may not use."""

    say: Callable[[Any], Words]
    flags: tuple[str, ...] = ()


Table = Mapping[str, Row]


def flag(name: str, *also: str) -> Row:
    """The value after a flag; `also`: other spellings of it."""
    return Row(say=lambda value: Words(argv=(name, str(value))), flags=(name, *also))


def switch(on: str, off: str) -> Row:
    """One flag for true, another for false; an empty one: that is what the engine does anyway."""
    both = tuple(name for name in (on, off) if name)

    def say(value: bool) -> Words:
        name = on if value else off
        return Words(argv=(name,) if name else ())

    return Row(say=say, flags=both)


def variable(name: str) -> Row:
    """The value in an environment variable; true is 1, false 0."""

    def say(value: Any) -> Words:
        return Words(env={name: str(int(value)) if isinstance(value, bool) else str(value)})

    return Row(say=say)


def option(*path: str) -> Row:
    """The value under nested keys of a file, or of keyword arguments."""

    def say(value: Any) -> Words:
        for key in reversed(path):
            value = {key: value}
        return Words(options=value)

    return Row(say=say)


def only(allowed: Any, reason: str) -> Row:
    """What the engine does anyway: it needs no words, and nothing else can be had."""

    def say(value: Any) -> Words:
        if value != allowed:
            raise CannotError(reason)
        return NOTHING

    return Row(say=say)


def never(reason: str) -> Row:
    """Nothing that the engine has a word for."""

    def say(value: Any) -> Words:
        del value
        raise CannotError(reason)

    return Row(say=say)


def one_of(allowed: Mapping[str, str], row: Row, what: str) -> Row:
    """The engine's word for each of ours; others are refused, with those that there are."""

    def say(value: str) -> Words:
        if value not in allowed:
            raise CannotError(f"{what} can be: {', '.join(sorted(allowed))}")
        return row.say(allowed[value])

    return Row(say=say, flags=row.flags)


DECLARED: Table = MappingProxyType(dict.fromkeys(SETTINGS, Row(say=lambda _value: NOTHING)))
"""For a server that others start: its settings are recorded as they say, and cannot be applied."""


def values_of(conf: EngineConf) -> dict[str, Any]:
    """The settings that say something: not None, not empty. `threads` and `gpus` as given."""
    values = {key: getattr(conf, key) for key in SETTINGS}
    values["speculation"] = conf.speculation if conf.speculation.is_on else None
    return {k: v for k, v in values.items() if v is not None and v not in ({}, [], "")}


def translate(conf: EngineConf, table: Table) -> Words:
    """All settings of `conf` in the engine's words; ConfigError for the first that it cannot take.

    KeyError if the table lacks a key: every adapter answers for all of them.
    """
    words = NOTHING
    for key, value in values_of(conf).items():
        try:
            words += table[key].say(value)
        except CannotError as cannot:
            raise refuse(f"engine.{key}", _shown(value), f"engine={conf.name} {cannot}") from cannot
    return words


def _shown(value: Any) -> Any:
    return getattr(value, "method", value)


def check_raw(conf: EngineConf, table: Table, owned: Mapping[str, str]) -> None:
    """ConfigError for a raw argument that a neutral key says. `owned`: further flags, by key."""
    rows = {name: f"engine.{key}" for key, row in table.items() for name in row.flags}
    refuse_owned(conf.args, {**rows, **owned})
