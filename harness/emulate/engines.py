"""Which engines can be emulated: a table of their wires."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from harness.config import EmulateConf
from harness.emulate.wires.openai import OpenAiWire
from harness.emulate.wires.sglang import SglangWire
from harness.emulate.wires.tgi import TgiWire
from harness.emulate.wires.wire import Wire
from harness.errors import ConfigError

WIRES: Mapping[str, type[Wire]] = MappingProxyType(
    {
        "openai": OpenAiWire,
        "sglang": SglangWire,
        "tgi": TgiWire,
    }
)


def played(conf: EmulateConf, wire: type[Wire]) -> EmulateConf:
    """The knobs with the engine's own choice for those that are not given."""
    mine = {key: value for key, value in wire.defaults.items() if getattr(conf, key) is None}
    return replace(conf, **mine)  # type: ignore[arg-type]


def wire_class(engine: str) -> type[Wire]:
    """An engine's wire; ConfigError names those that there are."""
    if engine not in WIRES:
        raise ConfigError(
            f"engine={engine}: cannot be emulated; these can: {', '.join(sorted(WIRES))}"
        )
    return WIRES[engine]
