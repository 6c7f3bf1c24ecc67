"""What a request to llama.cpp's server asks for, on its OpenAI routes and on its own.

Names, defaults and refusals as in llama-server b11434 and the wheel b11549 (seen).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from zlib import crc32

import msgspec

from harness.emulate.wires.openai.order import RefusedError, chat_text
from harness.emulate.wires.prompt import CHARACTERS_A_TOKEN

_INVALID = "[json.exception.type_error.302] type must be"
_ELEMENTS = (
    '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt '
    "string, or a list of mixed strings & tokens."
)
_ONE_PROMPT = "this emulator takes one prompt a request, of text or of token ids"

_VOCABULARY = 49152  # of the model that was captured


class Form(Enum):
    """The three kinds of routes; what differs is how answers are written."""

    COMPLETIONS = "text_completion"
    CHAT = "chat.completion"
    NATIVE = "native"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaOrder:
    """A request that is understood. `max_tokens`: below 0 takes what is left of the context.

    `lora`: the adapters' scales as they were written, for the cache's keys.
    """

    form: Form
    prompt: str | Sequence[int]
    max_tokens: int
    is_forced: bool
    is_stream: bool
    has_usage: bool
    has_cache: bool
    has_timings: bool
    temperature: float
    seed: int | None
    lora: str


def read_llama_order(body: bytes, form: Form) -> LlamaOrder:
    """Read a request's body; RefusedError says what is wrong with it, in the server's words."""
    data = json_object(body)
    options = data.get("stream_options")
    seed = _number(data, "seed", None)
    return LlamaOrder(
        form=form,
        prompt=_messages(data) if form is Form.CHAT else _prompt(data),
        max_tokens=_most(data),
        is_forced=_flag(data, "ignore_eos", default=False),
        is_stream=_flag(data, "stream", default=False),
        has_usage=isinstance(options, Mapping) and bool(options.get("include_usage")),
        has_cache=_flag(data, "cache_prompt", default=True),
        has_timings=_flag(data, "timings_per_token", default=False),
        temperature=float(_number(data, "temperature", 0.8)),
        seed=None if seed is None or seed < 0 else int(seed),
        lora=repr(data.get("lora") or ""),
    )


def json_object(body: bytes) -> dict[str, Any]:
    """The decoded body; RefusedError if it is no JSON object."""
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"[json.exception.parse_error.101] parse error: {error}"
        raise RefusedError(message, "body") from error
    if not isinstance(data, dict):
        message = f"[json.exception.type_error.304] cannot use at() with {_kind(data)}"
        raise RefusedError(message, "body")
    return data


def tokenized(body: bytes) -> dict[str, object]:
    """The answer of `/tokenize`: the emulator's own tokens, whose ids mean nothing."""
    data = json_object(body)
    text = data.get("content") or ""
    if not isinstance(text, str):
        raise RefusedError(f"{_INVALID} string, but is {_kind(text)}", "content")
    pieces = [text[at : at + CHARACTERS_A_TOKEN] for at in range(0, len(text), CHARACTERS_A_TOKEN)]
    ids = [crc32(piece.encode("utf-8", "surrogatepass")) % _VOCABULARY for piece in pieces]
    if not data.get("with_pieces"):
        return {"tokens": ids}
    rows = [{"id": one, "piece": piece} for one, piece in zip(ids, pieces, strict=True)]
    return {"tokens": rows}


def _most(data: Mapping[str, Any]) -> int:
    names = ("n_predict", "max_tokens", "max_completion_tokens")
    given = (_number(data, name, None) for name in names)
    most = next((int(value) for value in given if value is not None), -1)
    count = _number(data, "n", 1)
    if count != 1:
        raise RefusedError(f"Field 'n': this emulator gives one answer, not {count}", "n")
    return most or 1  # 0 still gives one token


def _messages(data: Mapping[str, Any]) -> str:
    if "messages" not in data:
        raise RefusedError("'messages' is required", "messages")
    return chat_text(data["messages"])


def _prompt(data: Mapping[str, Any]) -> str | list[int]:
    if "prompt" not in data:
        raise RefusedError("[json.exception.out_of_range.403] key 'prompt' not found", "prompt")
    value = data["prompt"]
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, list) and not value:
        raise RefusedError('"prompt" must not be empty', "prompt")
    if isinstance(value, list) and all(type(token) is int for token in value):
        if min(value) < 0:
            raise RefusedError("Prompt contains invalid tokens", "prompt")
        return value
    if not isinstance(value, str):
        message = _ONE_PROMPT if isinstance(value, list) else _ELEMENTS
        raise RefusedError(message, "prompt")
    return value


def _number(data: Mapping[str, Any], key: str, default: Any) -> Any:
    return _typed(data, key, (int, float), "number", default)


def _flag(data: Mapping[str, Any], key: str, *, default: bool) -> bool:
    return bool(_typed(data, key, bool, "boolean", default))


def _typed(data: Mapping[str, Any], key: str, kind: Any, name: str, default: Any) -> Any:
    value = data.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise RefusedError(f"Field '{key}': {_INVALID} {name}, but is {_kind(value)}", key)
    return value


def _kind(value: Any) -> str:
    """The JSON type of a value, in the words of the server's JSON library."""
    if value is None:
        return "null"
    kinds = {bool: "boolean", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "number")
