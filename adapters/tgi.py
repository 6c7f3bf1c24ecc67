"""Text Generation Inference: its native stream (one event a token) or its chat route.

A length cannot be forced over HTTP (TGI 3.3.7, router/src/validation.rs): answers end by
themselves, and their lengths are compared as they came.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adapters.diagnosis import diagnose
from adapters.metrics import known_sample
from adapters.openai_compatible import OpenAICompatible, get, is_emulated, post
from adapters.tgi_figures import FAILURES, LOG_PREFIX, identity, log_facts, plain
from adapters.tgi_launch import OWNED, SETTINGS, check_together, serve_spec
from adapters.tgi_wire import TgiDecoder, native_body
from harness.adapter import TOKENIZE_PROBE, Decoder, ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf, ModelFormat, Route
from harness.types import (
    Capabilities,
    Diagnosis,
    EngineIdentity,
    EngineSample,
    HttpCall,
    LogFacts,
    Provenance,
    Request,
    ResponseHead,
)


class TgiAdapter(OpenAICompatible):
    """TGI; `engine.route=completions` is the native stream, `chat` the OpenAI route."""

    name = "tgi"
    settings = SETTINGS
    owned = OWNED
    model_format = ModelFormat.HF
    capabilities = Capabilities(
        forced_length=False,
        token_id_prompts=False,
        usage_in_stream=True,
        kv_metric=Provenance.NOT_EXPOSED,
        prefix_cache_off=True,
        tokenize_route=True,
        metrics=True,
    )
    sample_probes = ("metrics",)
    identity_probes = ("info", "models")

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        super().__init__(engine, model)
        check_together(engine)
        known = {name: get(f"/{name}") for name in ("health", "metrics", "info")}
        self.probes = {
            **self.probes,
            **known,
            "tokenize": post("/tokenize", {"inputs": TOKENIZE_PROBE}),
        }

    @property
    def _served_name(self) -> str:
        return self._model.served_name or "tgi"  # any other name is taken for a LoRA adapter

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """The launcher, on this machine or in its image."""
        return serve_spec(conf, model, ctx)

    def encode(self, request: Request) -> HttpCall:
        """See `harness.adapter.Adapter`."""
        if self._engine.route is Route.CHAT:
            return super().encode(request)
        return post("/generate_stream", native_body(request))

    def _extras(self) -> dict[str, Any]:
        return {"top_p": None}  # TGI refuses a top_p of 1

    def decoder(self, head: ResponseHead) -> Decoder:
        """See `harness.adapter.Adapter`."""
        return super().decoder(head) if self._engine.route is Route.CHAT else TgiDecoder(head)

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        """Queue, batch and token totals; TGI exposes no KV usage."""
        return known_sample(bodies.get("metrics", b""))

    def identity(self, bodies: Mapping[str, bytes]) -> EngineIdentity:
        """From `/info`."""
        found = identity(bodies.get("info", b""))
        return replace(found, is_emulated=is_emulated(bodies.get("models", b"")))

    def log_facts(self, log: str) -> LogFacts:
        """See `harness.adapter.Adapter`."""
        return log_facts(log)

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """See `harness.adapter.Adapter`."""
        return diagnose(plain(log_tail), FAILURES, LOG_PREFIX)
