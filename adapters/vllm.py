"""vLLM's OpenAI server, on GPUs and its build for CPUs.

Source: vLLM 0.33.0 as read, its CPU build 0.32.0 as seen (both V1 engines, one wire).
"""

from collections.abc import Mapping
from typing import Any

from adapters.diagnosis import diagnose
from adapters.metrics import known_sample
from adapters.openai_compatible import OpenAICompatible, get, post
from adapters.vllm_figures import FAILURES, LOG_PREFIX, identity, log_facts
from adapters.vllm_launch import CPU_SETTINGS, OWNED, SETTINGS, check_together, serve_spec
from harness.adapter import TOKENIZE_PROBE, ServeContext, ServeSpec
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

_NEUTRAL = {"top_k": 0, "min_p": 0.0}


class VllmAdapter(OpenAICompatible):
    """vLLM. `engine.program`: a `vllm` command to use in place of the environment's Python.

    Nothing asks for the route that empties the prefix cache, so the server is not put into its
    developer mode, which opens that one and others that run code.
    """

    name = "vllm"
    settings = SETTINGS
    owned = OWNED
    model_format: ModelFormat | None = ModelFormat.HF
    capabilities = Capabilities(
        forced_length=True,
        token_id_prompts=True,
        usage_in_stream=True,
        kv_metric=Provenance.MEASURED,
        prefix_cache_off=True,
        tokenize_route=True,
        metrics=True,
    )
    sample_probes = ("metrics",)
    identity_probes = ("version", "models", "metrics")

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        super().__init__(engine, model)
        check_together(engine, self.settings)
        tokenize = {"prompt": TOKENIZE_PROBE, "add_special_tokens": False}
        self.probes = {
            **{name: get(f"/{name}") for name in ("health", "metrics", "version")},
            "models": get("/v1/models"),
            "tokenize": post("/tokenize", tokenize),
        }

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """The environment's Python with vLLM's server module, a `vllm` command, or the image."""
        return serve_spec(conf, model, ctx, self.settings)

    def _sampling(self, request: Request) -> dict[str, Any]:
        """All of it, and the length: a server that others started may take other defaults.

        `min_tokens` keeps a stop token from ending the answer too, `ignore_eos` only the EOS.
        """
        unfiltered = _NEUTRAL if request.temperature > 0 else {}
        forced = {"ignore_eos": True, "min_tokens": request.max_output_tokens}
        return super()._sampling(request) | unfiltered | {"repetition_penalty": 1.0} | forced

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        """From `/metrics`, under the newer names and the older."""
        return known_sample(bodies.get("metrics", b""))

    def identity(self, bodies: Mapping[str, bytes]) -> EngineIdentity:
        """From `/version`, `/v1/models` and the cache's labels in `/metrics`."""
        return identity(super().identity(bodies), bodies)

    def log_facts(self, log: str) -> LogFacts:
        """See `harness.adapter.Adapter`."""
        return log_facts(log)

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """See `harness.adapter.Adapter`."""
        return diagnose(log_tail, FAILURES, LOG_PREFIX)


class VllmCpuAdapter(VllmAdapter):
    """vLLM's CPU build: the same server and wire; threads, cache and dtype are said otherwise."""

    name = "vllm_cpu"
    settings = CPU_SETTINGS
