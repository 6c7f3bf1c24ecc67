"""DeepSpeed-MII over gRPC, the route that streams as the engine decodes, or its OpenAI server.

gRPC: a message for each token; greedy is do_sample=false, a length is forced by ignore_eos with
max_new_tokens. The OpenAI server always samples and never ignores the end of text: a length
cannot be forced there, and a stream says no counts. Neither has metrics. Source: DeepSpeed-MII
0.3.3 (mii/grpc_related, mii/entrypoints, modelresponse.proto).
"""

from typing import Any

from adapters.arguments import refuse
from adapters.deepspeed_mii_figures import FAILURES, LOG_PREFIX, log_facts
from adapters.deepspeed_mii_launch import OWNED, SETTINGS, check_together, serve_spec, served_name
from adapters.diagnosis import diagnose
from adapters.mii_decoder import MiiDecoder
from adapters.mii_wire import STREAM_PATH, request_message
from adapters.openai_compatible import OpenAICompatible, get
from adapters.session import plain_text
from harness.adapter import Decoder, ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf, ModelFormat, Route
from harness.types import (
    Capabilities,
    Diagnosis,
    HttpCall,
    LogFacts,
    Provenance,
    Request,
    ResponseHead,
    Wire,
)


def _capabilities(*, is_chat: bool) -> Capabilities:
    return Capabilities(
        forced_length=not is_chat,
        token_id_prompts=False,
        usage_in_stream=not is_chat,
        kv_metric=Provenance.NOT_EXPOSED,
        prefix_cache_off=True,
        tokenize_route=False,
        metrics=False,
        wire=Wire.HTTP if is_chat else Wire.GRPC,
    )


class DeepSpeedMiiAdapter(OpenAICompatible):
    """MII: `engine.route=completions` is its gRPC stream, `chat` its OpenAI server."""

    name = "deepspeed_mii"
    model_format = ModelFormat.HF
    settings = SETTINGS
    owned = OWNED
    capabilities = _capabilities(is_chat=False)

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        super().__init__(engine, model)
        check_together(engine)
        self._is_chat = engine.route is Route.CHAT
        self.capabilities = _capabilities(is_chat=self._is_chat)
        if self._is_chat:  # its gRPC port has no health, and opens when it can answer
            self.probes = {**self.probes, "health": get("/health")}

    @property
    def _served_name(self) -> str:
        return served_name(self._model)

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """Our server script, which calls `mii.serve`."""
        return serve_spec(conf, model, ctx)

    def encode(self, request: Request) -> HttpCall:
        """See `harness.adapter.Adapter`; MII has no seed: sampled answers differ each time."""
        if self._is_chat:
            return super().encode(request)
        self._lora(request)
        message = request_message(
            plain_text(request),
            max_new_tokens=request.max_output_tokens,
            temperature=request.temperature,
        )
        return HttpCall(path=STREAM_PATH, body=message, wire=Wire.GRPC)

    def _sampling(self, request: Request) -> dict[str, Any]:
        """It refuses temperature 0: the likeliest token alone is left instead."""
        top_k = {"top_k": 1} if request.temperature == 0 else {}
        return {"temperature": request.temperature or 1.0, "top_p": 1.0, **top_k}

    def _extras(self) -> dict[str, Any]:
        return {"stream_options": None}

    def _lora(self, request: Request) -> dict[str, Any]:
        if request.lora:
            raise refuse("scenario.lora", request.lora, "engine=deepspeed_mii has no LoRA adapters")
        return {}

    def decoder(self, head: ResponseHead) -> Decoder:
        """See `harness.adapter.Adapter`."""
        return super().decoder(head) if self._is_chat else MiiDecoder()

    def log_facts(self, log: str) -> LogFacts:
        """See `harness.adapter.Adapter`."""
        return log_facts(log)

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """See `harness.adapter.Adapter`."""
        return diagnose(log_tail, FAILURES, LOG_PREFIX)
