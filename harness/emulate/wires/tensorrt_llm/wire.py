"""trtllm-serve as in TensorRT-LLM 1.2 (from its sources, never recorded).

Its port is closed while it loads; schemas forbid unknown fields; every refusal is a flat 400;
usage comes unless it is refused; `/metrics` is emptied by reading it (the real one also waits up
to 2 s for more); it looks for clients that have gone once a second.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from adapters.openai_compatible import EMULATOR
from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf
from harness.emulate.wires.http import json_response, response
from harness.emulate.wires.openai.answer import Named
from harness.emulate.wires.openai.order import Order, RefusedError, read_order
from harness.emulate.wires.openai.wire import OpenAiWire
from harness.emulate.wires.tensorrt_llm.answer import StreamedAnswer, WholeAnswer
from harness.emulate.wires.tensorrt_llm.stats import iteration
from harness.emulate.wires.wire import Answer, EngineState, Manners

VERSION = "1.2.1"
_BOTH = frozenset(
    (
        *("model", "max_tokens", "stream", "stream_options", "temperature", "top_p", "top_k"),
        *("min_p", "seed", "n", "stop", "stop_token_ids", "ignore_eos", "min_tokens", "logprobs"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty", "length_penalty"),
        *("early_stopping", "best_of", "use_beam_search", "add_special_tokens", "detokenize"),
        *("skip_special_tokens", "spaces_between_special_tokens", "truncate_prompt_tokens"),
        *("include_stop_str_in_output", "logit_bias", "lora_request", "response_format", "user"),
        *("disaggregated_params", "prompt_ignore_length", "top_p_min", "return_context_logits"),
    )
)
_FIELDS = {
    False: _BOTH | {"prompt", "echo", "suffix"},
    True: _BOTH
    | {
        *("messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice"),
        *("prompt_token_ids", "add_generation_prompt", "chat_template", "chat_template_kwargs"),
        *("documents", "echo", "reasoning_effort"),
    },
}


class TensorRtLlmWire(OpenAiWire):
    """See `harness.emulate.wires.wire.Wire`."""

    manners = Manners(disconnect_poll_s=1.0)

    def __init__(self, conf: EmulateConf, names: tuple[str, ...]) -> None:
        super().__init__(conf, names)
        self._name = self._served
        self._names = ()  # any model is taken, and echoed

    def _tell(self, path: str, request: HttpRequest, state: EngineState) -> bytes:
        del request
        match path:
            case "/health":
                return response(200, b"")
            case "/version":
                return json_response(200, {"version": VERSION})
            case "/v1/models":
                more = {"object": "model", "created": self._created, "owned_by": EMULATOR}
                return json_response(200, {"object": "list", "data": [{"id": self._name, **more}]})
            case "/metrics":
                since_s = float(self._created)
                steps = [iteration(self._conf, one, since_s) for one in state.take_steps()]
                return json_response(200, steps)
            case _:
                return json_response(404, {"detail": "Not Found"})

    def _order(self, body: bytes, *, is_chat: bool) -> Order:
        data = _fields(body, is_chat=is_chat)
        order = read_order(body, is_chat=is_chat)
        given = (data.get(key) for key in ("max_tokens", "max_completion_tokens"))
        if all(value is None for value in given):
            order = replace(order, max_tokens=None)  # what is left of the context
        options = data.get("stream_options") or {}
        has_usage = order.is_stream and options.get("include_usage", True) is True
        return replace(order, has_usage=has_usage)

    def _answer(self, order: Order, named: Named, tokens: int) -> Answer:
        del tokens
        if order.is_stream:
            return StreamedAnswer(named, has_usage=order.has_usage)
        return WholeAnswer(named)

    def _refuse(self, refused: RefusedError, body: bytes) -> bytes:
        del body
        return _error(400, str(refused))

    def _failure(self, order: Order) -> bytes | None:
        """Its connection breaks off: an exception in the middle sends no event."""
        del order
        return None

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """429, which the real one never answers: it queues."""
        more = {"retry-after": str(retry_after_s)}
        return _error(429, f"{in_flight} requests are in flight: try again later", more)

    def failed(self) -> bytes:
        """400 for the engine's own failure too."""
        return _error(400, "Executor worker returned error")


def _fields(body: bytes, *, is_chat: bool) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(f"JSON decode error: {error}", "body") from error
    if not isinstance(data, dict):
        raise RefusedError("the body must be an object", "body")
    if data.get("model") is None:
        raise RefusedError("[{'type': 'missing', 'loc': ('body', 'model')}]", "model")
    for key in data:
        if key not in _FIELDS[is_chat]:
            raise RefusedError(f"[{{'type': 'extra_forbidden', 'loc': ('body', '{key}')}}]", key)
    if data.get("suffix") is not None:
        raise RefusedError("suffix is not supported", "suffix")
    return data


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> bytes:
    error = {"object": "error", "message": message, "type": "BadRequestError", "param": None}
    return json_response(status, {**error, "code": status}, headers)
