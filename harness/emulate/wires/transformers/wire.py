"""`transformers serve`: continuous batching, or with one slot its other mode, one at a time.

Its models are owned by `bakeoff-emulator`, which marks a run as emulated. Source: transformers
5.19 and 5.24 as captured; `/v1/models` is that of 5.24.
"""

import time
from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID

from adapters.openai_compatible import EMULATOR
from harness.calibrate.server.wire import CHAT_PATH, COMPLETIONS_PATH, HttpRequest
from harness.config import EmulateConf
from harness.emulate.wires.http import json_response, response
from harness.emulate.wires.prompt import block_keys, count_tokens, natural_end
from harness.emulate.wires.transformers.answer import (
    END,
    Named,
    StreamedAnswer,
    WholeAnswer,
    stream_error,
    stream_head,
)
from harness.emulate.wires.transformers.order import (
    Order,
    RefusedError,
    UnforeseenError,
    read_order,
)
from harness.emulate.wires.wire import Ask, EngineState, Manners

DEFAULT_NAME = "emulated"
_GENERATE = {COMPLETIONS_PATH: False, CHAT_PATH: True}
_GETS = {"/health", "/v1/models"}
_NO_SHAPE = "cannot reshape tensor of 0 elements"  # what an empty prompt does to the batch
_ZERO = "`max_new_tokens` must be greater than 0, but is {}."


class TransformersWire:
    """See `harness.emulate.wires.wire.Wire`.

    In continuous batching the first request fixes the sampling, and the end token of those that
    name none; an empty prompt ends the thread that generates, and with it all that follows.
    """

    defaults: Mapping[str, object] = MappingProxyType(
        {"slots": 1024, "tokens_per_step": 8192, "prefix_cache": True}
    )
    manners = Manners()

    def __init__(self, conf: EmulateConf, names: tuple[str, ...]) -> None:
        self._conf = conf
        self._name = names[0] if names else ""
        self._created = int(time.clock_gettime(time.CLOCK_REALTIME))
        self._is_continuous = conf.slots_played > 1
        self._first: Order | None = None
        self._is_dead = False

    def respond(self, request: HttpRequest, number: int, state: EngineState) -> bytes | Ask:
        """Generation, models, health and the route that unloads."""
        path = request.path.partition("?")[0]
        request_id = request.headers.get("x-request-id") or str(UUID(int=number))
        more = {"x-request-id": request_id}
        wanted = "GET" if path in _GETS else "POST"
        if path not in {*_GENERATE, *_GETS, "/reset"}:
            return json_response(404, {"detail": "Not Found"}, more)
        if request.method != wanted:
            allow = {"allow": wanted, **more}
            return json_response(405, {"detail": "Method Not Allowed"}, allow)
        if path not in _GENERATE:
            return self._tell(path, state, more)
        try:
            return self._generate(request, number, request_id, is_chat=_GENERATE[path])
        except RefusedError as refused:
            return json_response(refused.status, {"detail": refused.detail}, more)
        except UnforeseenError:
            return self.failed()

    def _generate(
        self, request: HttpRequest, number: int, request_id: str, *, is_chat: bool
    ) -> bytes | Ask:
        order = read_order(request, is_chat=is_chat, pinned=self._name)
        if self._is_dead:
            return _worker("is dead and cannot accept request", request_id)
        if not order.prompt:
            return self._no_prompt(order, request_id)
        return self._ask(order, number, request_id, is_chat=is_chat)

    def _tell(self, path: str, state: EngineState, more: Mapping[str, str]) -> bytes:
        if path == "/health" and self._is_dead:
            sick = {"status": "unhealthy", "reason": "cb_worker_dead"}
            return json_response(503, sick, more)
        if path == "/v1/models":
            name = self._name or DEFAULT_NAME
            model = {"owned_by": EMULATOR, "id": name, "object": "model", "created": 0}
            listed = {**model, "status": {"value": "loaded"}}
            return json_response(200, {"object": "list", "data": [listed]}, more)
        if path == "/reset":
            state.reset_cache()
        return json_response(200, {"status": "ok"}, more)

    def loading(self) -> bytes:
        """Never asked: the port is closed until the weights are loaded."""
        return self.failed()

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """429 as of a proxy before it: the server itself queues without a limit."""
        detail = f"{in_flight} requests are in flight: try again later"
        return json_response(429, {"detail": detail}, {"retry-after": str(retry_after_s)})

    def failed(self) -> bytes:
        """The plain 500 of everything unforeseen."""
        return response(500, b"Internal Server Error", "text/plain; charset=utf-8")

    def _ask(self, order: Order, number: int, request_id: str, *, is_chat: bool) -> bytes | Ask:
        self._first = self._first or order
        prompt_tokens = count_tokens(order.prompt)
        if prompt_tokens + max(0, order.max_tokens) > self._conf.kv_tokens:
            return self.failed()  # no length is checked, but this cache cannot hold it
        output_tokens, has_eos = self._length(order, number)
        model = self._name or DEFAULT_NAME
        named = Named(
            id=request_id,
            model=model if "@" in model else f"{model}@main",
            created=self._created,
            prompt_tokens=prompt_tokens,
            finish_reason="length" if output_tokens >= order.max_tokens else "stop",
            is_chat=is_chat,
            has_eos=has_eos,
        )
        answer = StreamedAnswer(named) if order.is_stream else WholeAnswer(named)
        if output_tokens < 1:
            return self._nothing(order, answer, request_id)
        has_keys = self._is_continuous and self._conf.prefix_cache
        return Ask(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            finish_reason=named.finish_reason,
            answer=answer,
            block_keys=block_keys(order.prompt, self._conf.block_tokens, model) if has_keys else (),
        )

    def _no_prompt(self, order: Order, request_id: str) -> bytes:
        """The answer to a prompt without a token, which no model can be given."""
        self._is_dead = self._is_continuous
        if order.is_stream:
            return stream_head(request_id) + stream_error(_NO_SHAPE) + END
        if self._is_continuous:
            return _worker("died during request", request_id)
        return self.failed()

    def _nothing(
        self, order: Order, answer: StreamedAnswer | WholeAnswer, request_id: str
    ) -> bytes:
        """The answer to max_tokens of 0: an empty one, or one at a time an error."""
        if self._is_continuous:
            return answer.head + answer.finish(0)
        if not order.is_stream:
            return self.failed()
        head = answer.head or stream_head(request_id)
        return head + stream_error(_ZERO.format(order.max_tokens)) + END

    def _length(self, order: Order, number: int) -> tuple[int, bool]:
        """Tokens of the answer, and whether the last of them is an end without text."""
        most, least = max(0, order.max_tokens), order.min_tokens
        first = self._first or order
        is_sampled, can_end = order.is_sampled, order.eos is not False
        if self._is_continuous:
            is_sampled, least = first.is_sampled, 0
            if order.has_config and order.eos is None:  # it takes the end of the first request
                can_end = bool(first.eos) or not first.has_config
        if not can_end or least >= most:
            return most, False
        end = natural_end(
            self._conf, order.prompt, number=number, is_sampled=is_sampled, seed=order.seed
        )
        natural = max(end, least + 1)
        return (natural, True) if natural <= most else (most, False)


def _worker(what: str, request_id: str) -> bytes:
    """The answer once the thread that batches has ended."""
    reason = f"CB worker {what} {request_id}: {_NO_SHAPE}"
    return json_response(503, {"error": reason}, {"x-request-id": request_id})
