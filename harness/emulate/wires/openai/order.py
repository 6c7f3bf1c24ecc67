"""What a request to `/v1/completions` or `/v1/chat/completions` asks for.

Refusals are in the form of vLLM 0.32 (as captured): status 400 with message, type, param and code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

DEFAULT_MAX_TOKENS = 16  # OpenAI's, of completions; a chat answer takes what is left


class RefusedError(Exception):
    """A request that is refused; carries what is said about it.

    `is_schema`: its body is not of the form that the route takes; some engines answer otherwise.
    """

    def __init__(
        self, message: str, param: str, *, status: int = 400, is_schema: bool = False
    ) -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        self.is_schema = is_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request that is understood. `max_tokens`: None takes what is left of the context.

    `has_usage`: at the end; `has_running_usage`: with every token. `has_ids`: tokens as ids too.
    """

    prompt: str | Sequence[int]
    model: str
    max_tokens: int | None
    min_tokens: int
    is_forced: bool
    is_stream: bool
    has_usage: bool
    has_running_usage: bool
    has_ids: bool
    temperature: float
    seed: int | None


def read_order(body: bytes, *, is_chat: bool) -> Order:
    """Read a request's body; RefusedError says what is wrong with it."""
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(f"JSON decode error: {error}", "body", is_schema=True) from error
    if not isinstance(data, dict):
        raise RefusedError("the body must be an object", "body", is_schema=True)
    options = data.get("stream_options")
    is_stream = _typed(data, "stream", bool, default=False)
    if options is not None and not (is_stream and isinstance(options, dict)):
        raise RefusedError(
            "Stream options can only be defined when `stream=True`.",
            "stream_options",
            is_schema=True,
        )
    if _typed(data, "n", int, default=1) != 1:
        raise RefusedError("n must be 1: this emulator gives one answer a request", "n")
    max_tokens = data.get("max_completion_tokens")
    if max_tokens is None:
        max_tokens = _typed(data, "max_tokens", int, default=None)
    if max_tokens is None and not is_chat:
        max_tokens = DEFAULT_MAX_TOKENS
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise RefusedError(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens")
    return Order(
        prompt=chat_text(data.get("messages")) if is_chat else _prompt(data.get("prompt")),
        model=_typed(data, "model", str, default=""),
        max_tokens=max_tokens,
        min_tokens=max(0, _typed(data, "min_tokens", int, default=0)),
        is_forced=_typed(data, "ignore_eos", bool, default=False),
        is_stream=is_stream,
        has_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        has_running_usage=isinstance(options, dict) and bool(options.get("continuous_usage_stats")),
        has_ids=_typed(data, "return_token_ids", bool, default=False),
        temperature=float(_typed(data, "temperature", (int, float), default=1.0)),
        seed=_typed(data, "seed", int, default=None),
    )


def _typed(data: dict[str, Any], key: str, kind: Any, *, default: Any) -> Any:
    value = data.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise RefusedError(f"{key}: {value!r} is of the wrong type", key, is_schema=True)
    return value


def _prompt(value: Any) -> str | list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value and all(type(token) is int for token in value):
        return value
    raise RefusedError("prompt must be one text or one list of token ids, not empty", "prompt")


def chat_text(messages: Any) -> str:
    """The messages as one text, so that a longer talk begins with the shorter one."""
    if not isinstance(messages, list) or not messages:
        raise RefusedError("messages must be a list of at least one", "messages")
    parts = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            texts = (part.get("text") for part in content if isinstance(part, dict))
            content = "".join(text for text in texts if isinstance(text, str))
        if not isinstance(content, str):
            raise RefusedError("each message needs a content", "messages")
        parts.append(f"<|{message.get('role')}|>{content}")
    return "".join(parts)
