"""Any server with the OpenAI wire, attach only; known metrics are read if the server has them."""

from collections.abc import Mapping
from typing import Any

from adapters.arguments import refuse
from adapters.metrics import known_sample
from adapters.openai_compatible import OpenAICompatible, get
from harness.config import EngineConf, ModelConf
from harness.types import EngineSample

_OWNED = ("model", "prompt", "messages", "max_tokens", "stream", "n")


class OpenAIAdapter(OpenAICompatible):
    """A server that runs already.

    `engine.args` are further fields of every request's body (`ignore_eos: true`); null takes out
    a field that the server refuses (`stream_options: null`).
    """

    name = "openai"
    sample_probes = ("metrics",)

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        super().__init__(engine, model)
        for key in _OWNED:
            if key in engine.args:
                reason = "is set by bakeoff for every request and cannot be replaced"
                raise refuse(f"engine.args.{key}", engine.args[key], reason)
        self.probes = {**self.probes, "metrics": get("/metrics")}

    def _extras(self) -> dict[str, Any]:
        return dict(self._engine.args)

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        """Figures of vLLM, SGLang, llama.cpp and TGI by their names; else all None."""
        return known_sample(bodies.get("metrics", b""))
