"""Which engines can be emulated: a table of their wires."""

from collections.abc import Mapping
from types import MappingProxyType

from harness.emulate.wires.openai import OpenAiWire
from harness.emulate.wires.wire import Wire
from harness.errors import ConfigError

WIRES: Mapping[str, type[Wire]] = MappingProxyType({"openai": OpenAiWire})


def wire_class(engine: str) -> type[Wire]:
    """An engine's wire; ConfigError names those that there are."""
    if engine not in WIRES:
        raise ConfigError(
            f"engine={engine}: cannot be emulated; these can: {', '.join(sorted(WIRES))}"
        )
    return WIRES[engine]
