"""TensorRT-LLM behind trtllm-serve: its PyTorch backend, or up to 1.2.1 an engine built before.

Its schemas forbid unknown fields, so only names that every version has are sent.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adapters import tensorrt_llm_figures as figures
from adapters.diagnosis import diagnose
from adapters.openai_compatible import OpenAICompatible, get
from adapters.tensorrt_llm_launch import OWNED, check_args, lora_fields, serve_spec, settings_of
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf, ModelFormat
from harness.types import (
    Capabilities,
    Diagnosis,
    EngineIdentity,
    EngineSample,
    LogFacts,
    Provenance,
    Request,
)

_HOLD_S = 3.0  # /metrics waits up to 2 s for more


class TensorRtLlmAdapter(OpenAICompatible):
    """TensorRT-LLM. `engine.args`: keys of LlmArgs, and with a dash in front flags.

    `engine.args.flow`: `pytorch`, or `engine`, which is built first with the script that
    `engine.args.convert_checkpoint` names. `engine.args.return_perf_metrics=true`: figures come
    from the Prometheus text, since the JSON list is then empty.
    """

    name = "tensorrt_llm"
    owned = OWNED
    model_format = ModelFormat.HF
    capabilities = Capabilities(
        forced_length=True,
        token_id_prompts=True,
        usage_in_stream=True,
        kv_metric=Provenance.DERIVED,
        prefix_cache_off=True,
        tokenize_route=False,
        metrics=True,
    )

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        self.settings = settings_of(engine)
        super().__init__(engine, model)
        check_args(engine)
        source = "prometheus" if engine.args.get("return_perf_metrics") else "metrics"
        self.sample_probes = (source,)
        self.identity_probes = ("version", "models", source)
        self.probes = {
            **self.probes,
            **{name: get(f"/{name}") for name in ("health", "version")},
            "metrics": replace(get("/metrics"), hold_s=_HOLD_S),
            "prometheus": get("/prometheus/metrics"),
        }

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """`trtllm-serve` with its file, and the steps that build an engine."""
        return serve_spec(conf, model, ctx)

    def _extras(self) -> dict[str, Any]:
        return {"ignore_eos": True}

    def _lora(self, request: Request) -> dict[str, Any]:
        return lora_fields(self._engine, request.lora)

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        """From the newest iteration, or from the Prometheus text."""
        if "prometheus" in bodies:
            return figures.prometheus_sample(bodies["prometheus"])
        return figures.iteration_sample(bodies.get("metrics", b""))

    def identity(self, bodies: Mapping[str, bytes]) -> EngineIdentity:
        """From `/version` and `/v1/models`; the KV capacity from the figures."""
        sources = (bodies.get(name, b"") for name in ("metrics", "prometheus"))
        return replace(
            super().identity(bodies),
            version=figures.version(bodies.get("version", b"")),
            kv_capacity_tokens=figures.kv_capacity_tokens(*sources),
        )

    def log_facts(self, log: str) -> LogFacts:
        """See `harness.adapter.Adapter`."""
        return figures.log_facts(log)

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """See `harness.adapter.Adapter`."""
        return diagnose(log_tail, figures.FAILURES, figures.LOG_PREFIX)
