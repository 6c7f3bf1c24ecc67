"""The bytes of an answer of `transformers serve`, in the form of 5.19 and 5.24 as captured.

Headers at once, and with them a chat's role; one HTTP chunk an event; keys that are null are left
out; finish_reason and usage share the last event, which carries no text; no [DONE].
"""

from dataclasses import dataclass

import msgspec

from harness.calibrate.server.wire import frame
from harness.emulate.wires.http import json_response
from harness.emulate.wires.openai.answer import word
from harness.emulate.wires.whole import Whole

END = b"0\r\n\r\n"


def stream_head(request_id: str) -> bytes:
    """The head of a stream."""
    return (
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        f"x-request-id: {request_id}\r\ntransfer-encoding: chunked\r\n\r\n"
    ).encode("latin-1")


def stream_error(text: str) -> bytes:
    """An error inside a stream: its text is put between quotes as it is."""
    return frame(f'data: {{"error": "{text}"}}\n\n'.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What an answer says of its request. `has_eos`: its last token is an end, without text."""

    id: str
    model: str
    created: int
    prompt_tokens: int
    finish_reason: str
    is_chat: bool
    has_eos: bool

    def usage(self, tokens: int) -> dict[str, int]:
        """The usage of a complete answer."""
        return {
            "completion_tokens": tokens,
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + tokens,
        }


class StreamedAnswer:
    """An answer of which each token is sent when it comes."""

    __slots__ = ("_after", "_before", "_named", "head", "started")

    def __init__(self, named: Named) -> None:
        self._named = named
        opening = b'"delta":{"content":' if named.is_chat else b'"index":0,"text":'
        closing = b'},"index":0' if named.is_chat else b""
        self._before = b'data: {"id":"%b","choices":[{%b' % (named.id.encode(), opening)
        self._after = b"%b}]%b}\n\n" % (closing, self._tail())
        self.started = b""
        self.head = stream_head(named.id)
        if named.is_chat:
            self.head += self._choice(b'"delta":{"role":"assistant"},"index":0')

    def _tail(self) -> bytes:
        """What every event ends with."""
        named = self._named
        kind = "chat.completion.chunk" if named.is_chat else "text_completion"
        more = b',"system_fingerprint":""' if named.is_chat else b""
        model = msgspec.json.encode(named.model)
        head = b',"created":%d,"model":%b,"object":"%b"' % (named.created, model, kind.encode())
        return head + more

    def _choice(self, choice: bytes, more: bytes = b"") -> bytes:
        parts = (self._named.id.encode(), choice, self._tail(), more)
        return frame(b'data: {"id":"%b","choices":[{%b}]%b%b}\n\n' % parts)

    def token(self, k: int) -> bytes:
        """The event of token `k`."""
        return frame(self._before + msgspec.json.encode(word(k)) + self._after)

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The event of the last token, unless it is an end, and the event that ends it all."""
        del cached_tokens  # the server does not tell
        event = b"" if self._named.has_eos else self.token(k)
        return event + self.finish(k + 1)

    def finish(self, tokens: int) -> bytes:
        """The last event of an answer of so many tokens, and the end of the body."""
        named = self._named
        reason = named.finish_reason.encode()
        choice = b'"finish_reason":"%b","index":0,"text":""' % reason
        if named.is_chat:
            choice = b'"delta":{},"index":0,"finish_reason":"%b"' % reason
        usage = msgspec.json.encode(named.usage(tokens))
        return self._choice(choice, b',"usage":%b' % usage) + END


class WholeAnswer(Whole):
    """An answer that is sent when it is complete."""

    __slots__ = ("_named",)

    def __init__(self, named: Named) -> None:
        self._named = named

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it."""
        del cached_tokens
        return self.finish(k + 1)

    def finish(self, tokens: int) -> bytes:
        """The whole answer of so many tokens."""
        named = self._named
        text = "".join(word(k) for k in range(tokens - named.has_eos))
        content: dict[str, object] = {"text": text}
        if named.is_chat:
            content = {"message": {"content": text, "role": "assistant"}}
        body = {
            "id": named.id,
            "choices": [{"finish_reason": named.finish_reason, "index": 0, **content}],
            "created": named.created,
            "model": named.model,
            "object": "chat.completion" if named.is_chat else "text_completion",
            "usage": named.usage(tokens),
        }
        return json_response(200, body, {"x-request-id": named.id})
