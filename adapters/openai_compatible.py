"""The base of every adapter that speaks the OpenAI wire; a subclass adds what its engine has."""

from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.failures import json_value
from adapters.openai_wire import OpenAIDecoder
from adapters.session import messages, plain_text
from adapters.settings import DECLARED, Table, check_raw, translate
from harness.adapter import Decoder, ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf, ModelFormat, Route
from harness.errors import ConfigError
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

PATHS = {Route.COMPLETIONS: "/v1/completions", Route.CHAT: "/v1/chat/completions"}
EMULATOR = "bakeoff-emulator"  # `owned_by` of an emulator's models
JSON_HEADERS = {"content-type": "application/json"}


def post(path: str, body: object) -> HttpCall:
    """A POST of a JSON body."""
    return HttpCall(path=path, headers=JSON_HEADERS, body=msgspec.json.encode(body))


def get(path: str) -> HttpCall:
    """A GET."""
    return HttpCall(method="GET", path=path)


def is_emulated(models_body: bytes) -> bool:
    """Whether `/v1/models` says that it is `bakeoff emulate` which answers."""
    return any(model.get("owned_by") == EMULATOR for model in _models(models_body))


def plain_name(model: Any) -> str | None:
    """What a server calls its model; of one that it read from a folder, that folder's name."""
    if not isinstance(model, str):
        return None
    return model.rstrip("/").rpartition("/")[2] if model.startswith("/") else model


def _models(body: bytes) -> list[dict[str, Any]]:
    value = json_value(body)
    data = value.get("data") if isinstance(value, dict) else None
    return [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []


class OpenAICompatible:
    """An engine with `/v1/completions` and `/v1/chat/completions`.

    Every request names its sampling and its length: engines' own defaults differ. Greedy at
    temperature 0; above it, unfiltered sampling with the request's seed.

    A subclass whose server we start gives `model_format`, `settings` (every neutral key in its
    words), `owned` (further flags that raw arguments may not use, with the key that says them)
    and `serve`.
    """

    name = "openai"
    model_format: ModelFormat | None = None
    settings: Table = DECLARED
    owned: Mapping[str, str] = {}
    capabilities = Capabilities(
        forced_length=False,
        token_id_prompts=False,
        usage_in_stream=True,
        kv_metric=Provenance.NOT_EXPOSED,
        prefix_cache_off=False,
        tokenize_route=False,
        metrics=False,
    )
    probes: Mapping[str, HttpCall]
    sample_probes: tuple[str, ...] = ()
    identity_probes: tuple[str, ...] = ("models",)

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        self._engine = engine
        self._model = model
        translate(engine, self.settings)
        check_raw(engine, self.settings, self.owned)
        self.probes = {"models": get("/v1/models")}

    @property
    def _served_name(self) -> str:
        return self._model.served_name or self._model.name

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """Not possible for a server that we only attach to."""
        del model, ctx
        raise ConfigError(
            f"launch.mode=process: engine={conf.name} is not started by bakeoff; start it yourself "
            "and give launch=attach launch.base_url=http://127.0.0.1:PORT"
        )

    def encode(self, request: Request) -> HttpCall:
        """See `harness.adapter.Adapter`."""
        body: dict[str, Any] = {"model": self._served_name}
        if self._engine.route is Route.CHAT:
            body["messages"] = messages(request)
        else:
            body["prompt"] = plain_text(request)
        body |= {"max_tokens": request.max_output_tokens, "stream": True}
        body |= {"stream_options": {"include_usage": True}}
        body |= self._sampling(request) | self._extras() | self._lora(request)
        body = {key: value for key, value in body.items() if value is not None}
        return post(PATHS[self._engine.route], body)

    def _sampling(self, request: Request) -> dict[str, Any]:
        if request.temperature == 0:
            return {"temperature": 0.0}
        return {"temperature": request.temperature, "top_p": 1.0, "seed": request.seed}

    def _lora(self, request: Request) -> dict[str, Any]:
        """The fields that choose a request's LoRA adapter: vLLM serves it by name."""
        return {"model": request.lora} if request.lora else {}

    def _extras(self) -> dict[str, Any]:
        """Further fields of the body; None takes a field out."""
        return {}

    def decoder(self, head: ResponseHead) -> Decoder:
        """See `harness.adapter.Adapter`."""
        return OpenAIDecoder(head)

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        """Nothing: the OpenAI wire has no metrics."""
        del bodies
        return EngineSample()

    def identity(self, bodies: Mapping[str, bytes]) -> EngineIdentity:
        """The served model, the longest sequence where the server adds it, and an emulator."""
        models = _models(bodies.get("models", b""))
        named = [m for m in models if m.get("id") == self._served_name] or models
        first = named[0] if named else {}
        model, limit = first.get("id"), first.get("max_model_len")
        return EngineIdentity(
            model=plain_name(model),
            max_model_len_tokens=limit if isinstance(limit, int) else None,
            is_emulated=is_emulated(bodies.get("models", b"")),
        )

    def log_facts(self, log: str) -> LogFacts:
        """Nothing: the log of a server that we attach to is not ours."""
        del log
        return LogFacts()

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """Nothing: the log of a server that we attach to is not ours."""
        del log_tail
        return None
