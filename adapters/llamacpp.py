"""llama.cpp's server: the one inside the xllamacpp wheel, a `llama-server` binary, or its image.

All take the same flags and speak the same wire (the first two tried with b11434).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adapters.arguments import refuse
from adapters.diagnosis import diagnose
from adapters.llamacpp_figures import FAILURES, LOG_PREFIX, identity, log_facts, sample
from adapters.llamacpp_launch import OWNED, SETTINGS, check_together, serve_spec
from adapters.openai_compatible import OpenAICompatible, get, is_emulated, post
from harness.adapter import TOKENIZE_PROBE, ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf, ModelFormat
from harness.types import (
    Capabilities,
    Diagnosis,
    EngineIdentity,
    EngineSample,
    HttpCall,
    LogFacts,
    Provenance,
    Request,
)


class LlamaCppAdapter(OpenAICompatible):
    """llama.cpp. `engine.program`: a llama-server to use in place of the wheel's.

    The context is divided: each of `max_running` slots has `max_model_len` tokens of its own, so
    no request can take another's (a shared pool fails all of them when it is full).
    """

    name = "llamacpp"
    settings = SETTINGS
    owned = OWNED
    model_format = ModelFormat.GGUF
    capabilities = Capabilities(
        forced_length=True,
        token_id_prompts=True,
        usage_in_stream=True,
        kv_metric=Provenance.DERIVED,
        prefix_cache_off=True,
        tokenize_route=True,
        metrics=True,
    )
    sample_probes = ("metrics", "slots")
    identity_probes = ("props", "models")

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        super().__init__(engine, model)
        check_together(engine)
        tokenize = {"content": TOKENIZE_PROBE, "add_special": False}
        self.probes: Mapping[str, HttpCall] = {
            **{name: get(f"/{name}") for name in ("health", "metrics", "slots", "props")},
            "models": get("/v1/models"),
            "tokenize": post("/tokenize", tokenize),
        }

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """The wheel's server or the binary, with every setting said."""
        return serve_spec(conf, model, ctx)

    def _extras(self) -> dict[str, Any]:
        return {"ignore_eos": True, "cache_prompt": self._engine.prefix_cache}

    def _sampling(self, request: Request) -> dict[str, Any]:
        unfiltered = {"top_k": 0, "min_p": 0.0} if request.temperature > 0 else {}
        return super()._sampling(request) | unfiltered

    def _lora(self, request: Request) -> dict[str, Any]:
        """Every adapter's scale, by its place among those that were loaded: 1 or 0."""
        names = tuple(self._engine.lora)
        if request.lora is not None and request.lora not in names:
            reason = f"is not loaded; engine.lora has: {', '.join(names) or 'none'}"
            raise refuse("scenario.lora", request.lora, reason)
        scales = [{"id": k, "scale": float(one == request.lora)} for k, one in enumerate(names)]
        return {"lora": scales} if names else {}

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        """From `/metrics`; the KV usage is derived from `/slots`."""
        return sample(bodies.get("metrics", b""), bodies.get("slots", b""))

    def identity(self, bodies: Mapping[str, bytes]) -> EngineIdentity:
        """From `/props`."""
        found = identity(bodies.get("props", b""))
        return replace(found, is_emulated=is_emulated(bodies.get("models", b"")))

    def log_facts(self, log: str) -> LogFacts:
        """See `harness.adapter.Adapter`."""
        return log_facts(log)

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """See `harness.adapter.Adapter`."""
        return diagnose(log_tail, FAILURES, LOG_PREFIX)
