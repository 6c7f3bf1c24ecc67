"""SGLang: its OpenAI routes, started as `python -m sglang.launch_server` or out of its image.

Source: SGLang 0.5.23, srt/entrypoints/. Not run by us.
"""

from collections.abc import Mapping
from typing import Any

from adapters.diagnosis import diagnose
from adapters.openai_compatible import OpenAICompatible, get, post
from adapters.sglang_figures import FAILURES, LOG_PREFIX, identity, log_facts, sample
from adapters.sglang_launch import OWNED, SETTINGS, serve_spec
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


class SglangAdapter(OpenAICompatible):
    """SGLang.

    Ready by `/health`, which every version has: 503 until the server's own warm-up is done.
    `/ready` says the same but is new. A server that others started generates a token for the one
    `/health` that says 200, and answers a second later.
    """

    name = "sglang"
    settings = SETTINGS
    owned = OWNED
    model_format = ModelFormat.HF
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
    identity_probes = ("server_info", "get_server_info", "models")

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        super().__init__(engine, model)
        tokenize = {"prompt": TOKENIZE_PROBE, "add_special_tokens": False}
        self.probes: Mapping[str, HttpCall] = {
            **{name: get(f"/{name}") for name in ("health", "metrics", "server_info")},
            "get_server_info": get("/get_server_info"),  # its older name
            "models": get("/v1/models"),
            "tokenize": post("/tokenize", tokenize),
            "reset_cache": post("/flush_cache", {}),
        }

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """The server with every setting said."""
        return serve_spec(conf, model, ctx)

    def _extras(self) -> dict[str, Any]:
        """The length is exact by this alone.

        With `min_tokens` too, each step would add a matrix of batch x vocabulary to the logits.
        """
        return {"ignore_eos": True}

    def _sampling(self, request: Request) -> dict[str, Any]:
        """All of it, greedy or not: the chat route fills gaps from generation_config.json."""
        unfiltered = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        return super()._sampling(request) | unfiltered

    def _lora(self, request: Request) -> dict[str, Any]:
        """By `base:adapter`: a bare adapter name is taken for the base model, without an error."""
        return {"model": f"{self._served_name}:{request.lora}"} if request.lora else {}

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        """From `/metrics`, which the server has only with --enable-metrics."""
        return sample(bodies.get("metrics", b""))

    def identity(self, bodies: Mapping[str, bytes]) -> EngineIdentity:
        """From `/server_info`; the context and an emulator from `/v1/models`."""
        info = bodies.get("server_info") or bodies.get("get_server_info", b"")
        found = super().identity(bodies)
        return identity(info, found)

    def log_facts(self, log: str) -> LogFacts:
        """See `harness.adapter.Adapter`."""
        return log_facts(log)

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """See `harness.adapter.Adapter`."""
        return diagnose(log_tail, FAILURES, LOG_PREFIX)
