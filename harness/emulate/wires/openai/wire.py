"""A server with OpenAI's completions and chat, as vLLM serves them, its metrics under vLLM's names.

Its models are owned by `bakeoff-emulator`, which marks a run as emulated.
"""

import time
from collections.abc import Mapping

from adapters.openai_compatible import EMULATOR
from harness.calibrate.server.wire import CHAT_PATH, COMPLETIONS_PATH, HttpRequest
from harness.config import EmulateConf
from harness.emulate.wires.http import json_response, response
from harness.emulate.wires.openai.answer import (
    STREAM_FAILURE,
    Named,
    StreamedAnswer,
    WholeAnswer,
)
from harness.emulate.wires.openai.order import Order, RefusedError, read_order
from harness.emulate.wires.prompt import block_keys, count_tokens, natural_end
from harness.emulate.wires.vllm.metrics import CONTENT_TYPE, metrics_text
from harness.emulate.wires.wire import Answer, Ask, EngineState, Manners

DEFAULT_NAME = "emulated"
_GENERATE = {COMPLETIONS_PATH: False, CHAT_PATH: True}


class OpenAiWire:
    """See `harness.emulate.wires.wire.Wire`."""

    defaults: Mapping[str, object] = {}
    manners = Manners(listens_while_loading=True)
    posts = frozenset((*_GENERATE, "/reset_prefix_cache"))

    def __init__(self, conf: EmulateConf, names: tuple[str, ...]) -> None:
        self._conf = conf
        self._names = names
        self._created = int(time.clock_gettime(time.CLOCK_REALTIME))

    def respond(self, request: HttpRequest, number: int, state: EngineState) -> bytes | Ask:
        """Generation, models, health, metrics, and vLLM's route that resets the cache."""
        path = request.path.partition("?")[0]
        if path in self.posts and request.method != "POST":
            return json_response(405, {"detail": "Method Not Allowed"})
        if path in _GENERATE:
            try:
                return self._ask(request.body, number, is_chat=_GENERATE[path])
            except RefusedError as refused:
                return self._refuse(refused, request.body)
        return self._tell(path, request, state)

    def _refuse(self, refused: RefusedError, body: bytes) -> bytes:
        del body
        return error_response(refused.status, str(refused), "BadRequestError", refused.param)

    def _tell(self, path: str, request: HttpRequest, state: EngineState) -> bytes:
        del request
        match path:
            case "/health":
                return response(200, b"")
            case "/v1/models":
                return json_response(200, {"object": "list", "data": self._models()})
            case "/metrics":
                text = metrics_text(self._conf, self._served, state, self._created)
                return response(200, text, CONTENT_TYPE)
            case "/reset_prefix_cache":
                state.reset_cache()
                return json_response(200, {"success": True})
            case _:
                return json_response(404, {"detail": "Not Found"})

    def loading(self) -> bytes:
        """llama.cpp's words, the only engine known here that answers while it loads."""
        return error_response(503, "Loading model", "unavailable_error", None)

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """429 with the wait that is asked for."""
        message = f"{in_flight} requests are in flight: try again later"
        headers = {"retry-after": str(retry_after_s)}
        return error_response(429, message, "rate_limit_error", None, headers)

    def failed(self) -> bytes:
        """500 in vLLM's form."""
        return error_response(500, "EngineCore encountered an issue.", "InternalServerError", None)

    @property
    def _served(self) -> str:
        return self._names[0] if self._names else DEFAULT_NAME

    def _models(self) -> list[dict[str, object]]:
        limit = self._conf.longest_tokens
        more = {"object": "model", "created": self._created, "owned_by": EMULATOR}
        names = self._names or (DEFAULT_NAME,)
        return [{"id": name, **more, "max_model_len": limit} for name in names]

    def _order(self, body: bytes, *, is_chat: bool) -> Order:
        return read_order(body, is_chat=is_chat)

    def _ask(self, body: bytes, number: int, *, is_chat: bool) -> Ask:
        order = self._order(body, is_chat=is_chat)
        self._check_model(order.model)
        prompt_tokens = count_tokens(order.prompt)
        output_tokens, reason = self._length(order, prompt_tokens, number)
        named = Named(
            id=self._id(number, is_chat=is_chat),
            model=order.model or self._served,
            created=self._created,
            prompt_tokens=prompt_tokens,
            finish_reason=reason,
            is_chat=is_chat,
            has_cache=bool(self._conf.prefix_cache),
        )
        keys = (
            block_keys(order.prompt, self._conf.block_tokens, order.model)
            if self._conf.prefix_cache
            else ()
        )
        return Ask(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            finish_reason=reason,
            answer=self._answer(order, named, output_tokens),
            block_keys=keys,
            failure=self._failure(order),
        )

    def _check_model(self, name: str) -> None:
        """Refuse a model that is not served."""
        if self._names and name and name not in self._names:
            raise RefusedError(f"The model `{name}` does not exist.", "model", status=404)

    def _id(self, number: int, *, is_chat: bool) -> str:
        return f"{'chatcmpl' if is_chat else 'cmpl'}-{number:016x}"

    def _answer(self, order: Order, named: Named, tokens: int) -> Answer:
        if order.is_stream:
            return StreamedAnswer(named, tokens, has_usage=order.has_usage)
        return WholeAnswer(named)

    def _failure(self, order: Order) -> bytes | None:
        """What ends an answer that fails in its middle; None: its connection breaks off."""
        return STREAM_FAILURE if order.is_stream else self.failed()

    def _length(self, order: Order, prompt_tokens: int, number: int) -> tuple[int, str]:
        """Tokens of the answer, and why it ends."""
        left = self._conf.longest_tokens - prompt_tokens
        most = order.max_tokens if order.max_tokens is not None else left
        if most > left or left < 1:
            raise RefusedError(
                f"This model's maximum context length is {self._conf.longest_tokens} tokens. "
                f"However, you requested {most} output tokens and your prompt contains "
                f"{prompt_tokens} input tokens.",
                "input_tokens",
            )
        if order.is_forced:
            return most, "length"
        natural = natural_end(
            self._conf,
            order.prompt,
            number=number,
            is_sampled=order.temperature > 0,
            seed=order.seed,
        )
        natural = max(natural, order.min_tokens)
        return (natural, "stop") if natural <= most else (most, "length")


def error_response(
    status: int,
    message: str,
    kind: str,
    param: str | None,
    headers: dict[str, str] | None = None,
) -> bytes:
    """An error in OpenAI's form."""
    error = {"message": message, "type": kind, "param": param, "code": status}
    return json_response(status, {"error": error}, headers)
