"""The baseline: `transformers serve`, in continuous batching or one request at a time.

Its bodies hold OpenAI's fields and `generation_config`, a string of JSON; any other field is
refused with 422 (transformers 5.19 and 5.24, as captured).
"""

from dataclasses import replace
from typing import Any

import msgspec

from adapters import transformers_launch as launch
from adapters.arguments import refuse
from adapters.diagnosis import diagnose
from adapters.openai_compatible import OpenAICompatible, get
from adapters.transformers_figures import FAILURES, LOG_PREFIX, log_facts
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf, ModelFormat
from harness.types import Capabilities, Diagnosis, LogFacts, Provenance, Request


class TransformersAdapter(OpenAICompatible):
    """transformers. Its stream ends without [DONE], with the usage in its last event.

    `engine.max_running`: left out for continuous batching, 1 for one request after another.
    Requests name no model: the server has just one, and refuses any other name than the path or
    repository that it was started with; for a server that runs already, `model.served_name` is
    sent if it is given.
    """

    name = "transformers"
    settings = launch.CONTINUOUS
    owned = launch.OWNED
    model_format: ModelFormat | None = ModelFormat.HF
    capabilities = Capabilities(
        forced_length=True,
        token_id_prompts=False,
        usage_in_stream=True,
        kv_metric=Provenance.NOT_EXPOSED,
        prefix_cache_off=False,
        tokenize_route=False,
        metrics=False,
    )

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        self.settings = launch.table(engine)
        super().__init__(engine, model)
        launch.check_together(engine)
        can_be_off = not launch.is_continuous(engine)
        self.capabilities = replace(self.capabilities, prefix_cache_off=can_be_off)
        self.probes = {**self.probes, "health": get("/health")}

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """`transformers serve`, of the engine's environment, of `engine.program` or of an image."""
        return launch.serve_spec(conf, model, ctx)

    def _extras(self) -> dict[str, Any]:
        return {"model": self._model.served_name or None, "stream_options": None}

    def _sampling(self, request: Request) -> dict[str, Any]:
        """The fields of the body, and what has no field: it replaces the model's own settings.

        The length is forced. One at a time, the end token is held down until the length is
        reached; continuous batching ignores that, but takes an end token that never comes.
        """
        tokens, is_sampled = request.max_output_tokens, request.temperature > 0
        config: dict[str, Any] = {"max_new_tokens": tokens, "do_sample": is_sampled}
        config |= {"num_beams": 1, "repetition_penalty": 1.0}
        if is_sampled:
            config["top_k"] = 0
        if not launch.is_continuous(self._engine):
            config["min_new_tokens"] = tokens
        elif is_sampled:
            reason = (
                "engine=transformers takes the sampling of its first request for all others in "
                "continuous batching, and the first is greedy; use 0, or engine.max_running=1"
            )
            raise refuse("temperature", request.temperature, reason)
        else:
            config["eos_token_id"] = -1
        text = msgspec.json.encode(config).decode()
        return super()._sampling(request) | {"generation_config": text}

    def _lora(self, request: Request) -> dict[str, Any]:
        if request.lora is not None:
            raise refuse("scenario.lora", request.lora, "engine=transformers serves no adapters")
        return {}

    def log_facts(self, log: str) -> LogFacts:
        """See `harness.adapter.Adapter`."""
        return log_facts(log)

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """See `harness.adapter.Adapter`."""
        return diagnose(log_tail, FAILURES, LOG_PREFIX)
