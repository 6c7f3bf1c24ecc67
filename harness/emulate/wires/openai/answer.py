"""The bytes of an answer of `/v1/completions` and `/v1/chat/completions`, streamed or whole.

In the form of vLLM 0.32 as captured: headers as soon as the request is taken, one HTTP chunk an
event, the role with the first token, finish_reason with the last one, usage in an event of its
own if it is asked for, then [DONE].
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import msgspec

from harness.calibrate.server.wire import frame
from harness.emulate.wires.http import json_response
from harness.emulate.wires.whole import Whole

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_DATA = b'data: {"id":"'
STREAM_END = frame(b"data: [DONE]\n\n") + b"0\r\n\r\n"
STREAM_FAILURE = (
    frame(
        b'data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) '
        b'for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}\n\n'
    )
    + STREAM_END
)
Tail = Callable[[bytes, str | None], bytes]
"""What follows the name in a token's event: from its text as JSON, and why the answer ends."""


def word(k: int) -> str:
    """The text of token `k`: a lost, doubled or swapped token shows."""
    return f" tok{k}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Ready pieces of every token event of one form, around what names the request.

    The event of token k is `before[k] + name + after[k]`; names have one length, which the sizes
    of the HTTP chunks depend on.
    """

    before: list[bytes]
    after: list[bytes]
    name_bytes: int
    tail: Tail

    def reserve(self, tokens: int) -> None:
        """Make the lists long enough for an answer of this many tokens."""
        for k in range(len(self.before), tokens):
            text = msgspec.json.encode(word(k))
            rest = self.tail(text, None)
            size = len(_DATA) + self.name_bytes + len(rest)
            self.before.append(b"%x\r\n%b" % (size, _DATA))
            self.after.append(rest + b"\r\n")


@lru_cache(maxsize=64)
def words_for(name_bytes: int, tail: Tail) -> Words:
    """The ready pieces for names of this length; `tail` must be one object every time."""
    return Words(before=[], after=[], name_bytes=name_bytes, tail=tail)


def reason_json(finish_reason: str | None) -> bytes:
    """A finish reason as JSON."""
    return b"null" if finish_reason is None else b'"%b"' % finish_reason.encode()


def _text_tail(text: bytes, finish_reason: str | None) -> bytes:
    choice = b'"index":0,"text":%b,"logprobs":null,"finish_reason":%b'
    return b',"choices":[{' + choice % (text, reason_json(finish_reason)) + b"}]}\n\n"


def _delta_tail(text: bytes, finish_reason: str | None) -> bytes:
    choice = b'"index":0,"delta":{"content":%b},"logprobs":null,"finish_reason":%b'
    return b',"choices":[{' + choice % (text, reason_json(finish_reason)) + b"}]}\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What an answer says of its request. `name`: id, object, created and model, as JSON."""

    id: str
    model: str
    created: int
    prompt_tokens: int
    finish_reason: str
    is_chat: bool
    has_cache: bool

    def name(self, kind: str) -> bytes:
        """The id without its opening quote, object, created and model."""
        model = msgspec.json.encode(self.model)
        head = f'{self.id}","object":"{kind}","created":{self.created},"model":'
        return head.encode() + model

    def usage(self, tokens: int, cached_tokens: int) -> dict[str, object]:
        """The usage of a complete answer."""
        usage: dict[str, object] = {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + tokens,
            "completion_tokens": tokens,
        }
        if self.has_cache:
            usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
        return usage


class StreamedAnswer:
    """An answer of which each token is sent when it comes.

    An engine whose events carry more is a subclass with its own tails and its own `last`.
    """

    __slots__ = ("_after", "_before", "_has_usage", "_name", "_named", "_tail", "head", "started")
    tails: ClassVar[tuple[Tail, Tail]] = (_text_tail, _delta_tail)
    role = (
        b',"choices":[{"index":0,"delta":{"role":"assistant","content":""},'
        b'"logprobs":null,"finish_reason":null}]}\n\n'
    )

    def __init__(self, named: Named, tokens: int, *, has_usage: bool) -> None:
        kind = "chat.completion.chunk" if named.is_chat else "text_completion"
        self.head = STREAM_HEAD
        self.started = b""
        self._named = named
        self._name = named.name(kind)
        self._has_usage = has_usage
        self._tail = self.tails[named.is_chat]
        words = words_for(len(self._name), self._tail)
        words.reserve(tokens)
        self._before, self._after = words.before, words.after

    def token(self, k: int) -> bytes:
        """The event of token `k`; before the first one a chat names the role."""
        event = self._before[k] + self._name + self._after[k]
        return self._event(self.role) + event if k == 0 and self._named.is_chat else event

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The event of the last token, usage if asked for, and the end."""
        named = self._named
        end = self._event(self._tail(msgspec.json.encode(word(k)), named.finish_reason))
        if k == 0 and named.is_chat:
            end = self._event(self.role) + end
        if self._has_usage:
            usage = msgspec.json.encode(named.usage(k + 1, cached_tokens))
            end += self._event(b',"choices":[],"usage":%b}\n\n' % usage)
        return end + STREAM_END

    def _event(self, rest: bytes) -> bytes:
        return frame(_DATA + self._name + rest)


class WholeAnswer(Whole):
    """An answer that is sent when it is complete."""

    __slots__ = ("_named",)

    def __init__(self, named: Named) -> None:
        self._named = named

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it."""
        text = "".join(word(one) for one in range(k + 1))
        return json_response(200, self._body(text, k + 1, cached_tokens))

    def _body(self, text: str, tokens: int, cached_tokens: int) -> dict[str, object]:
        named = self._named
        content: dict[str, object] = {"text": text}
        if named.is_chat:
            content = {"message": {"role": "assistant", "content": text}}
        end = {"logprobs": None, "finish_reason": named.finish_reason}
        return {
            "id": named.id,
            "object": "chat.completion" if named.is_chat else "text_completion",
            "created": named.created,
            "model": named.model,
            "choices": [{"index": 0, **content, **end}],
            "usage": named.usage(tokens, cached_tokens),
        }
