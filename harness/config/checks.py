"""What a value of the configuration may be, and the words that it may choose from."""

import math
from enum import EnumType, StrEnum
from typing import Any

from harness.errors import ConfigError


def require(condition: bool, key: str, value: object, allowed: str) -> None:
    """Raise ConfigError, which names key, value and what is allowed, unless it holds."""
    if not condition:
        raise ConfigError(f"{key}={value}: must be {allowed}")


def require_positive(key: str, value: float | None, unit: str) -> None:
    """Raise ConfigError unless the value is None or a finite number above 0."""
    if value is not None:
        require(math.isfinite(value) and value > 0, key, value, f"a finite number > 0 {unit}")


class _LowerCaseNames(EnumType):
    """OmegaConf looks enum members up by name; YAML writes them in lower case."""

    def __getitem__(cls, name: str) -> Any:
        return super().__getitem__(name.upper())


class Word(StrEnum, metaclass=_LowerCaseNames):
    """A fixed choice of words."""
