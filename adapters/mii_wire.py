"""The messages of DeepSpeed-MII's gRPC service: what a call asks for, and the replies of a stream.

`modelresponse.proto` of DeepSpeed-MII 0.3.3: GeneratorReplyStream takes a MultiStringRequest
(1 request, 2 query_kwargs: map of Value) and streams MultiGenerationReply (1 response: repeated
SingleGenerationReply). A stream has a message for each token with finish_reason `none`, then one
with empty text. Token k has the text ` k`, so that a lost, doubled or swapped one shows.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from adapters.protobuf import FIXED32, BadMessageError, field, fields

STREAM_PATH = "/modelresponse.ModelResponse/GeneratorReplyStream"
MAX_TOKENS = 65536
_DEFAULT_TOKENS = 128
_NO_TIME = struct.pack("<f", -1.0)  # what MII says of its times in a stream


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


def request_message(prompt: str, *, max_new_tokens: int) -> bytes:
    """A MultiStringRequest for a greedy stream of exactly this many tokens."""
    kwargs = {
        "stream": field(4, 1),
        "max_new_tokens": field(2, max_new_tokens),
        "ignore_eos": field(4, 1),
        "do_sample": field(4, 0),
    }
    entries = (field(1, name.encode()) + field(2, value) for name, value in kwargs.items())
    return field(1, prompt.encode()) + b"".join(field(2, entry) for entry in entries)


def read_request(message: bytes) -> Ask:
    """What a MultiStringRequest asks for; BadMessageError unless it asks for a stream."""
    prompts: list[bytes] = []
    kwargs: dict[bytes, Mapping[int, int | bytes]] = {}
    for number, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            prompts.append(value)
        elif number == 2 and isinstance(value, bytes):  # noqa: PLR2004 - the field's number
            entry = dict(fields(value))
            name, content = entry.get(1, b""), entry.get(2, b"")
            if isinstance(name, bytes) and isinstance(content, bytes):
                kwargs[name] = dict(fields(content))
    if not prompts or not kwargs.get(b"stream", {}).get(4):
        raise BadMessageError("a prompt and stream=true: must be there, this server only streams")
    tokens = kwargs.get(b"max_new_tokens", {}).get(2, _DEFAULT_TOKENS)
    if not isinstance(tokens, int) or not 1 <= tokens <= MAX_TOKENS:
        raise BadMessageError(f"max_new_tokens={tokens!r}: must be 1 to {MAX_TOKENS}")
    return Ask(tokens=tokens, prompt_tokens=len(prompts[0].split()))


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


def token_reply(k: int, prompt_tokens: int) -> bytes:
    """The message of token k."""
    return reply_message(
        Reply(
            text=f" {k}",
            finish_reason="none",
            prompt_tokens=prompt_tokens,
            generated_tokens=k + 1,
        )
    )


def last_reply(ask: Ask) -> bytes:
    """The message after the last token: no text, the reason for the end."""
    return reply_message(
        Reply(
            text="",
            finish_reason="length",
            prompt_tokens=ask.prompt_tokens,
            generated_tokens=ask.tokens,
        )
    )


def _text(value: int | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _int(value: int | bytes) -> int:
    return value if isinstance(value, int) else 0
