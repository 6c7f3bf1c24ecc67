"""The messages of DeepSpeed-MII's gRPC service: what a call asks for, and the replies of a stream.

`modelresponse.proto` of DeepSpeed-MII 0.3.3: GeneratorReplyStream takes a MultiStringRequest
(1 request, 2 query_kwargs: map of Value) and streams MultiGenerationReply (1 response: repeated
SingleGenerationReply). A stream has a message for each token with finish_reason `none`, then one
with empty text. The reference server gives token k the text ` k`, so that a lost, doubled or
swapped one shows.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from adapters.protobuf import FIXED32, BadMessageError, field, fields, float_field

STREAM_PATH = "/modelresponse.ModelResponse/GeneratorReplyStream"
MAX_TOKENS = 65536
_DEFAULT_TOKENS = 128
_FLOAT = struct.Struct("<f")
_NO_TIME = _FLOAT.pack(-1.0)  # what MII says of its times in a stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a call says. `kwargs`: the keywords of the generation, by their names in MII."""

    prompts: tuple[str, ...]
    kwargs: Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a call asks for. `prompt_tokens` counts words: the server has no tokenizer."""

    tokens: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One SingleGenerationReply. `finish_reason`: `none` until the last message."""

    text: str
    finish_reason: str
    prompt_tokens: int
    generated_tokens: int


def request_message(prompt: str, *, max_new_tokens: int, temperature: float = 0.0) -> bytes:
    """A MultiStringRequest for a stream of exactly this many tokens; temperature 0 is greedy."""
    kwargs = {
        "stream": field(4, 1),
        "max_new_tokens": field(2, max_new_tokens),
        "ignore_eos": field(4, 1),
        "do_sample": field(4, int(temperature > 0)),
    }
    if temperature > 0:
        kwargs |= {"temperature": float_field(3, temperature), "top_p": float_field(3, 1.0)}
    entries = (field(1, name.encode()) + field(2, value) for name, value in kwargs.items())
    return field(1, prompt.encode()) + b"".join(field(2, entry) for entry in entries)


def read_query(message: bytes) -> Query:
    """What a MultiStringRequest says; BadMessageError if it is none."""
    prompts: list[str] = []
    kwargs: dict[str, str | int | float | bool] = {}
    for number, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            prompts.append(_text(value))
        elif number == 2 and isinstance(value, bytes):  # noqa: PLR2004 - the field's number
            entry = dict(fields(value))
            content = entry.get(2, b"")
            if isinstance(content, bytes):
                kwargs[_text(entry.get(1, b""))] = _value(content)
    return Query(prompts=tuple(prompts), kwargs=kwargs)


def _value(content: bytes) -> str | int | float | bool:
    """What a Value holds: 1 text, 2 integer, 3 float, 4 truth; a Dictionary is none of ours."""
    for number, value in fields(content):
        match number, value:
            case 1, bytes():
                return _text(value)
            case 2, int():
                return value - (1 << 64) if value >> 63 else value
            case 3, bytes() if len(value) == _FLOAT.size:
                return float(_FLOAT.unpack(value)[0])
            case 4, int():
                return bool(value)
    raise BadMessageError("a keyword without a value")


def read_request(message: bytes) -> Ask:
    """What a MultiStringRequest asks for; BadMessageError unless it asks for a stream."""
    query = read_query(message)
    if not query.prompts or query.kwargs.get("stream") is not True:
        raise BadMessageError("a prompt and stream=true: must be there, this server only streams")
    tokens = query.kwargs.get("max_new_tokens", _DEFAULT_TOKENS)
    if type(tokens) is not int or not 1 <= tokens <= MAX_TOKENS:
        raise BadMessageError(f"max_new_tokens={tokens!r}: must be 1 to {MAX_TOKENS}")
    return Ask(tokens=tokens, prompt_tokens=len(query.prompts[0].split()))


def reply_message(reply: Reply) -> bytes:
    """A MultiGenerationReply that holds this one reply."""
    single = field(1, reply.text.encode()) if reply.text else b""
    single += field(2, reply.finish_reason.encode())
    single += field(3, reply.prompt_tokens) + field(4, reply.generated_tokens)
    times = bytes((5 << 3 | FIXED32,)) + _NO_TIME + bytes((6 << 3 | FIXED32,)) + _NO_TIME
    return field(1, single + times)


def read_reply(message: bytes) -> Reply:
    """The first reply in a MultiGenerationReply; BadMessageError if there is none."""
    for number, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            single = dict(fields(value))
            return Reply(
                text=_text(single.get(1, b"")),
                finish_reason=_text(single.get(2, b"")),
                prompt_tokens=_int(single.get(3, 0)),
                generated_tokens=_int(single.get(4, 0)),
            )
    raise BadMessageError("a MultiGenerationReply without a reply")


def word(k: int) -> str:
    """The text of token k of the reference server."""
    return f" {k}"


def token_reply(k: int, prompt_tokens: int, text: str = "") -> bytes:
    """The message of token k. `text`: empty takes the reference server's."""
    return reply_message(
        Reply(
            text=text or word(k),
            finish_reason="none",
            prompt_tokens=prompt_tokens,
            generated_tokens=k + 1,
        )
    )


def last_reply(ask: Ask, finish_reason: str = "length") -> bytes:
    """The message after the last token: no text, the reason for the end."""
    return reply_message(
        Reply(
            text="",
            finish_reason=finish_reason,
            prompt_tokens=ask.prompt_tokens,
            generated_tokens=ask.tokens,
        )
    )


def _text(value: int | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _int(value: int | bytes) -> int:
    return value if isinstance(value, int) else 0
