"""Triton Inference Server with TensorRT-LLM's backend, in front of an engine built before.

The measured route is `POST /v2/models/<model>/generate_stream`; metrics have a port of their own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adapters import tensorrt_llm_figures
from adapters.arguments import refuse
from adapters.diagnosis import diagnose
from adapters.failures import json_value
from adapters.metrics import Metrics
from adapters.openai_compatible import EMULATOR, OpenAICompatible, get, post
from adapters.triton_launch import DEFAULT_MODEL, MODEL, OWNED, SETTINGS, port_offset, serve_spec
from adapters.triton_wire import TritonDecoder, request_body
from harness.adapter import Decoder, ServeContext, ServeSpec
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

_REQUESTS, _BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
_LOG_PREFIX = rf"(?:[IWE]\d{{4}} [\d:.]+ \d+ [\w.]+:\d+\] )?(?:{tensorrt_llm_figures.LOG_PREFIX})?"


class TritonAdapter(OpenAICompatible):
    """Triton. `engine.args.model`: which of its models is asked, else `ensemble`.

    `engine.args.metrics_port_offset`: the port of its metrics less that of its requests, else 2.
    """

    name = "triton"
    settings = SETTINGS
    owned = OWNED
    model_format = ModelFormat.HF
    capabilities = Capabilities(
        forced_length=True,
        token_id_prompts=False,
        usage_in_stream=True,
        kv_metric=Provenance.MEASURED,
        prefix_cache_off=True,
        tokenize_route=False,
        metrics=True,
    )
    sample_probes = ("metrics",)
    identity_probes = ("server", "metrics")

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        super().__init__(engine, model)
        if engine.route is Route.CHAT:
            raise refuse("engine.route", engine.route, "engine=triton takes text, not messages")
        self._path = f"/v2/models/{engine.args.get(MODEL, DEFAULT_MODEL)}"
        self.probes = {
            "health": get("/v2/health/ready"),
            "server": get("/v2"),
            "config": get(f"{self._path}/config"),
            "metrics": replace(get("/metrics"), port_offset=port_offset(engine)),
        }

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """`tritonserver`, after the engine and the model repository."""
        del model
        return serve_spec(conf, ctx)

    def encode(self, request: Request) -> HttpCall:
        """See `harness.adapter.Adapter`."""
        if request.lora:
            raise refuse("scenario.lora", request.lora, "engine=triton has it by weights only")
        return post(f"{self._path}/generate_stream", request_body(request))

    def decoder(self, head: ResponseHead) -> Decoder:
        """See `harness.adapter.Adapter`."""
        return TritonDecoder(head)

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        """The backend's own figures; the queue of Triton itself is not among them."""
        metrics = Metrics(bodies.get("metrics", b""))
        usage = metrics.mean(_BLOCKS, kv_cache_block_type="fraction")
        return EngineSample(
            running=metrics.total(_REQUESTS, request_type="active"),
            waiting=metrics.total(_REQUESTS, request_type="waiting"),
            prompt_tokens_total=metrics.total("nv_llm_input_token_len_sum"),
            generation_tokens_total=metrics.total("nv_llm_output_token_len_sum"),
            kv_usage_ratio=usage,
            kv_provenance=Provenance.NOT_EXPOSED if usage is None else Provenance.MEASURED,
        )

    def identity(self, bodies: Mapping[str, bytes]) -> EngineIdentity:
        """Triton's version (not TensorRT-LLM's, which it does not tell), and the KV capacity."""
        value = json_value(bodies.get("server", b""))
        server: dict[str, Any] = value if isinstance(value, dict) else {}
        metrics = Metrics(bodies.get("metrics", b""))
        blocks = metrics.mean(_BLOCKS, kv_cache_block_type="max")
        tokens = metrics.mean(_BLOCKS, kv_cache_block_type="tokens_per")
        version = server.get("version")
        return EngineIdentity(
            version=version if isinstance(version, str) else None,
            kv_capacity_tokens=int(blocks * tokens) if blocks and tokens else None,
            is_emulated=server.get("name") == EMULATOR,
        )

    def log_facts(self, log: str) -> LogFacts:
        """See `harness.adapter.Adapter`."""
        return tensorrt_llm_figures.log_facts(log)

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """See `harness.adapter.Adapter`."""
        return diagnose(log_tail, tensorrt_llm_figures.FAILURES, _LOG_PREFIX)
