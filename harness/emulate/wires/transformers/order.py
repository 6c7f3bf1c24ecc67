"""What a request to `transformers serve` asks for, refused where and as the server refuses it.

Source: transformers 5.24, cli/serving, and answers of 5.19 and 5.24 as captured. What it has not
foreseen is a plain 500; an error of the sequential mode comes inside the stream.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.calibrate.server.wire import HttpRequest

DEFAULT_MAX_TOKENS = 1024
_BOTH = (
    *("frequency_penalty", "generation_config", "logit_bias", "logprobs", "max_tokens", "model"),
    *("n", "presence_penalty", "seed", "stop", "stream", "stream_options", "temperature", "top_p"),
    "user",
)
COMPLETION_FIELDS = frozenset((*_BOTH, "best_of", "echo", "prompt", "suffix"))
CHAT_FIELDS = frozenset(
    (
        *_BOTH,
        *("audio", "chat_template_kwargs", "function_call", "functions", "max_completion_tokens"),
        *("messages", "metadata", "modalities", "moderation", "parallel_tool_calls"),
        *("prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("reasoning_effort", "response_format", "safety_identifier", "service_tier", "store"),
        *("tool_choice", "tools", "top_logprobs", "verbosity", "web_search_options"),
    )
)
"""The fields of OpenAI's Python package 2, with the three that the server adds."""


class RefusedError(Exception):
    """A request that is refused with a status and FastAPI's `detail`."""

    def __init__(self, status: int, detail: object) -> None:
        super().__init__(str(detail))
        self.status = status
        self.detail = detail


class UnforeseenError(Exception):
    """What the server does not catch: a plain 500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request that is understood.

    `min_tokens`, `eos`: of its generation_config; `eos` is None if that does not name it, False
    if it names one that no token has. `has_config`: it brings a generation_config, which takes
    the place of the model's own.
    """

    prompt: str
    max_tokens: int
    min_tokens: int
    eos: bool | None
    has_config: bool
    is_stream: bool
    is_sampled: bool
    seed: int | None


def read_order(request: HttpRequest, *, is_chat: bool, pinned: str) -> Order:
    """Read a request; RefusedError or UnforeseenError. `pinned`: the model's name; empty: any."""
    data = _body(request)
    unexpected = set(data) - (CHAT_FIELDS if is_chat else COMPLETION_FIELDS)
    if unexpected:
        raise RefusedError(422, f"Unexpected fields in the request: {unexpected}")
    prompt = data.get("prompt", "")
    if not is_chat and not isinstance(prompt, str):
        raise RefusedError(400, "prompt must be a string.")
    model = data.get("model")
    if pinned and model not in {None, pinned}:
        raise RefusedError(400, f"Server is pinned to '{pinned}'; requested '{model}'.")
    try:
        text = _chat_text(data["messages"]) if is_chat else prompt
        return _order(data, text, is_chat=is_chat)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise UnforeseenError from error


def _body(request: HttpRequest) -> dict[str, Any]:
    """The body as FastAPI takes it: an object, sent as JSON."""
    if not request.body:
        raise RefusedError(422, [_problem("missing", "Field required", None)])
    text = request.body.decode(errors="replace")
    if "json" not in request.headers.get("content-type", "json"):
        raise RefusedError(422, [_no_object(text)])
    try:
        data = json.loads(text)
    except ValueError as error:
        at, why = getattr(error, "pos", 0), getattr(error, "msg", str(error))
        problem = {**_problem("json_invalid", "JSON decode error", {}), "loc": ["body", at]}
        raise RefusedError(422, [{**problem, "ctx": {"error": why}}]) from error
    if not isinstance(data, dict):
        raise RefusedError(422, [_no_object(data)])
    return data


def _problem(kind: str, message: str, given: object) -> dict[str, object]:
    return {"type": kind, "loc": ["body"], "msg": message, "input": given}


def _no_object(given: object) -> dict[str, object]:
    return _problem("dict_type", "Input should be a valid dictionary", given)


def _order(data: Mapping[str, Any], prompt: str, *, is_chat: bool) -> Order:
    config: dict[str, Any] = {}
    text = data.get("generation_config")
    if text is not None:
        config = dict(json.loads(text))
    most = data.get("max_completion_tokens") if is_chat else None
    most = data.get("max_tokens") if most is None else most
    if most is None:
        most = config.get("max_new_tokens") or DEFAULT_MAX_TOKENS
    temperature = float(1.0 if data.get("temperature") is None else data["temperature"])
    return Order(
        prompt=prompt,
        max_tokens=int(most),
        min_tokens=int(config.get("min_new_tokens") or 0),
        eos=_eos(config.get("eos_token_id")),
        has_config=text is not None,
        is_stream=bool(data.get("stream")),
        is_sampled=bool(config.get("do_sample")) and temperature > 0,
        seed=data.get("seed"),
    )


def _eos(value: Any) -> bool | None:
    """Whether a token can be the named end; None if none is named."""
    if value is None:
        return None
    ids = value if isinstance(value, list) else [value]
    return any(int(one) >= 0 for one in ids)


def _chat_text(messages: Any) -> str:
    """The messages as one text, so that a longer talk begins with the shorter one."""
    parts = []
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = " ".join(part["text"] for part in content if part["type"] == "text")
        parts.append(f"<|{message['role']}|>{content}")
    return "".join(parts)
