"""SGLang's routes as of 0.5.23 (source, not captured): completions, chat, what is told beside them.

While it loads its port is closed; then `/health` answers 503 until its own warm-up is done, though
all else is served. Unlike the real one, `/health` costs no token and no second.
"""

import time
from collections.abc import Mapping

import msgspec

from adapters.openai_compatible import EMULATOR
from harness.calibrate.server.wire import CHAT_PATH, COMPLETIONS_PATH, HttpRequest
from harness.config import EmulateConf
from harness.emulate.wires.http import json_response, response
from harness.emulate.wires.openai.answer import Named
from harness.emulate.wires.openai.order import Order, RefusedError
from harness.emulate.wires.openai.wire import OpenAiWire
from harness.emulate.wires.prompt import count_tokens
from harness.emulate.wires.sglang.answer import (
    FULL_QUEUE,
    StreamedAnswer,
    WholeAnswer,
    flat_error,
    streamed_error,
)
from harness.emulate.wires.sglang.metrics import CONTENT_TYPE, LazyMetrics
from harness.emulate.wires.wire import Answer, Ask, EngineState, Manners

VERSION = "0.5.23"
DECODE_LOG_INTERVAL = 10  # as our adapter starts it; SGLang's own choice is 40
WARMUP_TOKENS = 8  # of the request that the server sends itself before it is healthy
_TOKENIZE = ("/tokenize", "/v1/tokenize")
_SCHEMA = {"body", "stream_options", "n", "max_tokens"}


class SglangWire(OpenAiWire):
    """See `harness.emulate.wires.wire.Wire`."""

    # the cache is on by itself, a chunk of a prompt 8192 tokens on GPUs of 60 to 160 GiB
    defaults: Mapping[str, object] = {"prefix_cache": True, "tokens_per_step": 8192}
    manners = Manners()
    posts = frozenset((COMPLETIONS_PATH, CHAT_PATH, *_TOKENIZE))

    def __init__(self, conf: EmulateConf, names: tuple[str, ...]) -> None:
        super().__init__(conf, names)
        self._metrics = LazyMetrics(conf, self._served, DECODE_LOG_INTERVAL)
        self._is_stream = False  # whether the request that came last asks for a stream
        self._warm_s = time.monotonic() + WARMUP_TOKENS * conf.step_ms * 1e-3 / conf.speed

    def respond(self, request: HttpRequest, number: int, state: EngineState) -> bytes | Ask:
        """Generation, models, health, metrics, server information, and the cache's reset."""
        self._metrics.follow(state)
        return super().respond(request, number, state)

    def _refuse(self, refused: RefusedError, body: bytes) -> bytes:
        del body
        kind = "Bad Request" if refused.param in _SCHEMA else "BadRequestError"
        return flat_error(refused.status, str(refused), kind)

    def _tell(self, path: str, request: HttpRequest, state: EngineState) -> bytes:
        if path in _TOKENIZE:
            return self._tokenize(request.body)
        match path:
            case "/health" | "/health_generate" | "/ready":
                return response(200 if time.monotonic() >= self._warm_s else 503, b"")
            case "/metrics":
                return response(200, self._metrics.text(state), CONTENT_TYPE)
            case "/flush_cache":
                return self._flush(state)
            case "/v1/models":
                return super()._tell(path, request, state)
            case _:
                return self._inform(path)

    def _inform(self, path: str) -> bytes:
        match path:
            case "/server_info" | "/get_server_info":
                return json_response(200, self._server_info())
            case "/model_info" | "/get_model_info":
                info = {"model_path": self._served, "served_model_name": self._served}
                return json_response(200, {**info, "is_generation": True})
            case _:
                return json_response(404, {"detail": "Not Found"})

    def _server_info(self) -> dict[str, object]:
        conf = self._conf
        return {
            "model_path": self._served,
            "served_model_name": self._served,
            "context_length": conf.longest_tokens,
            "max_running_requests": conf.slots_played,
            "chunked_prefill_size": conf.step_tokens if conf.chunked_prefill else -1,
            "disable_radix_cache": not conf.prefix_cache,
            "decode_log_interval": DECODE_LOG_INTERVAL,
            "launch_command": f"bakeoff emulate sglang ({EMULATOR})",
            "max_total_num_tokens": conf.kv_tokens,
            "internal_states": [{"effective_max_running_requests_per_dp": conf.slots_played}],
            "version": VERSION,
            "frontend": "python",
        }

    def _flush(self, state: EngineState) -> bytes:
        gauges = state.gauges()
        if gauges.running or gauges.waiting:
            return response(400, b"Flush cache failed.\n", "text/plain; charset=utf-8")
        state.reset_cache()
        return response(200, b"Cache flushed.\n", "text/plain; charset=utf-8")

    def _tokenize(self, body: bytes) -> bytes:
        try:
            prompt = msgspec.json.decode(body)["prompt"]
        except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
            return flat_error(400, f"prompt: {error}", "Bad Request")
        if not isinstance(prompt, str):
            return flat_error(400, f"Invalid prompt type: {type(prompt)}.", "BadRequestError")
        count, limit = count_tokens(prompt), self._conf.longest_tokens
        answer = {"tokens": list(range(count)), "count": count, "max_model_len": limit}
        return json_response(200, answer)

    def loading(self) -> bytes:
        """Never needed: the port is closed while it loads."""
        return response(503, b"")

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """A full queue: in a stream an event, else 503. No wait is asked for."""
        del in_flight, retry_after_s
        if self._is_stream:
            return streamed_error(503, FULL_QUEUE, "SERVICE_UNAVAILABLE")
        return flat_error(503, FULL_QUEUE, "503")

    def failed(self) -> bytes:
        """500, in place of a stream too: nothing has been sent of it yet."""
        return flat_error(500, "Internal server error: emulated", "InternalServerError")

    def _failure(self, order: Order) -> bytes | None:
        """Its connection breaks off: what a stream that fails in the middle says is not known."""
        del order
        return None

    def _models(self) -> list[dict[str, object]]:
        """The first name is the model, the others are LoRA adapters."""
        base, *adapters = super()._models()
        more = {"parent": base["id"], "max_model_len": None}
        return [
            {**base, "root": base["id"], "parent": None},
            *({**one, "root": one["id"], **more} for one in adapters),
        ]

    def _check_model(self, name: str) -> None:
        """An unknown name is not refused: it is answered by the model that there is."""

    def _id(self, number: int, *, is_chat: bool) -> str:
        del is_chat
        return f"{number:032x}"

    def _answer(self, order: Order, named: Named, tokens: int) -> Answer:
        del tokens
        self._is_stream = order.is_stream
        if order.is_stream:
            return StreamedAnswer(named, self._metrics, has_usage=order.has_usage)
        return WholeAnswer(named, self._metrics)

    def _length(self, order: Order, prompt_tokens: int, number: int) -> tuple[int, str]:
        limit, asked = self._conf.longest_tokens, order.max_tokens
        if prompt_tokens >= limit:
            raise RefusedError(
                f"The input ({prompt_tokens} tokens) is longer than the model's context length "
                f"({limit} tokens).",
                "prompt",
            )
        if asked is not None and prompt_tokens + asked > limit:
            raise RefusedError(
                "Requested token count exceeds the model's maximum context length of "
                f"{limit} tokens. You requested a total of {prompt_tokens + asked} tokens: "
                f"{prompt_tokens} tokens from the input messages and {asked} tokens for the "
                "completion.",
                "prompt",
            )
        return super()._length(order, prompt_tokens, number)
