"""Text Generation Inference: its native stream (one event a token) or its chat route.

A length cannot be forced over HTTP (TGI 3.3.7, router/src/validation.rs).
"""

from collections.abc import Mapping
from typing import Any

from adapters.failures import json_value
from adapters.metrics import known_sample
from adapters.openai_compatible import OpenAICompatible, get, is_emulated, post
from adapters.session import plain_text
from adapters.tgi_wire import TgiDecoder
from harness.adapter import TOKENIZE_PROBE, Decoder
from harness.config import EngineConf, ModelConf, Route
from harness.types import (
    Capabilities,
    EngineIdentity,
    EngineSample,
    HttpCall,
    Provenance,
    Request,
    ResponseHead,
)


class TgiAdapter(OpenAICompatible):
    """TGI; `engine.route=completions` is the native stream, `chat` the OpenAI route."""

    name = "tgi"
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
        known = {name: get(f"/{name}") for name in ("health", "metrics", "info")}
        self.probes = {
            **self.probes,
            **known,
            "tokenize": post("/tokenize", {"inputs": TOKENIZE_PROBE}),
        }

    @property
    def _served_name(self) -> str:
        return self._model.served_name or "tgi"  # any other name is taken for a LoRA adapter

    def encode(self, request: Request) -> HttpCall:
        """See `harness.adapter.Adapter`."""
        if self._engine.route is Route.CHAT:
            return super().encode(request)
        parameters: dict[str, Any] = {"max_new_tokens": request.max_output_tokens, "details": True}
        parameters |= {"do_sample": request.temperature > 0}
        if request.temperature > 0:
            parameters |= {"temperature": request.temperature, "seed": request.seed}
        if request.lora:
            parameters["adapter_id"] = request.lora
        return post("/generate_stream", {"inputs": plain_text(request), "parameters": parameters})

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
        info = json_value(bodies.get("info", b""))
        fields = info if isinstance(info, dict) else {}
        version, model = fields.get("version"), fields.get("model_id")
        limit = fields.get("max_total_tokens")
        return EngineIdentity(
            version=version if isinstance(version, str) else None,
            model=model if isinstance(model, str) else None,
            max_model_len_tokens=limit if isinstance(limit, int) else None,
            is_emulated=is_emulated(bodies.get("models", b"")),
        )
