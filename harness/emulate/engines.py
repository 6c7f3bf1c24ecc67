"""Which engines can be emulated: a table of their wires."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from harness.config import EmulateConf
from harness.emulate.wires.llamacpp.wire import LlamaCppWire
from harness.emulate.wires.mii.wire import MiiWire
from harness.emulate.wires.openai.wire import OpenAiWire
from harness.emulate.wires.sglang.wire import SglangWire
from harness.emulate.wires.tensorrt_llm.wire import TensorRtLlmWire
from harness.emulate.wires.tgi.wire import TgiWire
from harness.emulate.wires.transformers.wire import TransformersWire
from harness.emulate.wires.triton.wire import TritonWire
from harness.emulate.wires.vllm.wire import VllmWire
from harness.emulate.wires.wire import Wire
from harness.errors import ConfigError

WIRES: Mapping[str, type[Wire]] = MappingProxyType(
    {
        "deepspeed_mii": MiiWire,
        "llamacpp": LlamaCppWire,
        "openai": OpenAiWire,
        "sglang": SglangWire,
        "tensorrt_llm": TensorRtLlmWire,
        "tgi": TgiWire,
        "transformers": TransformersWire,
        "triton": TritonWire,
        "vllm": VllmWire,
        "vllm_cpu": VllmWire,
    }
)


def played(conf: EmulateConf, wire: type[Wire]) -> EmulateConf:
    """The knobs with the engine's own choice for those that are not given.

    Each slot takes a token of every step: of the two, what is given bounds what is not.
    """
    mine: dict[str, Any] = {k: v for k, v in wire.defaults.items() if getattr(conf, k) is None}
    if "slots" in mine and conf.tokens_per_step:
        mine["slots"] = min(mine["slots"], conf.tokens_per_step)
    if "tokens_per_step" in mine and conf.slots:
        mine["tokens_per_step"] = max(mine["tokens_per_step"], conf.slots)
    return replace(conf, **mine)


def wire_class(engine: str) -> type[Wire]:
    """An engine's wire; ConfigError names those that there are."""
    if engine not in WIRES:
        raise ConfigError(
            f"engine={engine}: cannot be emulated; these can: {', '.join(sorted(WIRES))}"
        )
    return WIRES[engine]
