"""The bytes of an answer of `/v1/completions` and `/v1/chat/completions`, streamed or whole.

In the form of vLLM 0.32 as captured: headers as soon as the request is taken, one HTTP chunk an
event, the role with the first token, finish_reason with the last one, usage in an event of its
own if it is asked for, then [DONE].
"""

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from harness.calibrate.server.wire import frame
from harness.emulate.wires.http import json_response

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_DATA = b'data: {"id":"'
_END = frame(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def word(k: int) -> str:
    """The text of token `k`: a lost, doubled or swapped token shows."""
    return f" tok{k}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Ready pieces of every token event of one route, around what names the request.

    The event of token k is `before[k] + name + after[k]`; names have one length, which the sizes
    of the HTTP chunks depend on.
    """

    before: list[bytes]
    after: list[bytes]
    name_bytes: int
    is_chat: bool

    def reserve(self, tokens: int) -> None:
        """Make the lists long enough for an answer of this many tokens."""
        for k in range(len(self.before), tokens):
            text = msgspec.json.encode(word(k))
            rest = choice_tail(text, None, is_chat=self.is_chat)
            size = len(_DATA) + self.name_bytes + len(rest)
            self.before.append(b"%x\r\n%b" % (size, _DATA))
            self.after.append(rest + b"\r\n")


@lru_cache(maxsize=64)
def words_for(name_bytes: int, is_chat: bool) -> Words:
    """The ready pieces for names of this length."""
    return Words(before=[], after=[], name_bytes=name_bytes, is_chat=is_chat)


def choice_tail(text: bytes, finish_reason: str | None, *, is_chat: bool) -> bytes:
    """What follows the name in an event: one choice. `text`: as JSON."""
    content = b'"delta":{"content":%b}' % text if is_chat else b'"text":%b' % text
    reason = b"null" if finish_reason is None else b'"%b"' % finish_reason.encode()
    return b',"choices":[{"index":0,%b,"logprobs":null,"finish_reason":%b}]}\n\n' % (
        content,
        reason,
    )


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
    """An answer of which each token is sent when it comes."""

    __slots__ = ("_after", "_before", "_has_usage", "_name", "_named", "head", "started")

    def __init__(self, named: Named, tokens: int, *, has_usage: bool) -> None:
        kind = "chat.completion.chunk" if named.is_chat else "text_completion"
        self.head = STREAM_HEAD
        self.started = b""
        self._named = named
        self._name = named.name(kind)
        self._has_usage = has_usage
        words = words_for(len(self._name), named.is_chat)
        words.reserve(tokens)
        self._before, self._after = words.before, words.after

    def token(self, k: int) -> bytes:
        """The event of token `k`; before the first one a chat names the role."""
        event = self._before[k] + self._name + self._after[k]
        return self._role() + event if k == 0 and self._named.is_chat else event

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The event of the last token, usage if asked for, and the end."""
        named = self._named
        text = msgspec.json.encode(word(k))
        end = self._event(choice_tail(text, named.finish_reason, is_chat=named.is_chat))
        if k == 0 and named.is_chat:
            end = self._role() + end
        if self._has_usage:
            usage = msgspec.json.encode(named.usage(k + 1, cached_tokens))
            end += self._event(b',"choices":[],"usage":%b}\n\n' % usage)
        return end + _END

    def _role(self) -> bytes:
        return self._event(
            b',"choices":[{"index":0,"delta":{"role":"assistant","content":""},'
            b'"logprobs":null,"finish_reason":null}]}\n\n'
        )

    def _event(self, rest: bytes) -> bytes:
        return frame(_DATA + self._name + rest)


class WholeAnswer:
    """An answer that is sent when it is complete."""

    __slots__ = ("_named", "head", "started")

    def __init__(self, named: Named) -> None:
        self.head = self.started = b""
        self._named = named

    def token(self, k: int) -> bytes:
        """Nothing yet."""
        del k
        return b""

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it."""
        named = self._named
        text = "".join(word(one) for one in range(k + 1))
        content: dict[str, object] = {"text": text}
        if named.is_chat:
            content = {"message": {"role": "assistant", "content": text}}
        end = {"logprobs": None, "finish_reason": named.finish_reason}
        body = {
            "id": named.id,
            "object": "chat.completion" if named.is_chat else "text_completion",
            "created": named.created,
            "model": named.model,
            "choices": [{"index": 0, **content, **end}],
            "usage": named.usage(k + 1, cached_tokens),
        }
        return json_response(200, body)
