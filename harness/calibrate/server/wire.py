"""The bytes of the reference server: HTTP/1.1 requests in, precomputed chunked events out.

The events have the form of the OpenAI API (completions and chat). Token k has the text ` k`, so
that a lost, doubled or swapped token shows in the text. Nothing here knows a socket or a clock.
"""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

MODEL = "stub"
MAX_TOKENS = 65536
_INDEX_DIGITS = 18  # what a signed 64-bit column holds
COMPLETIONS_PATH = "/v1/completions"
CHAT_PATH = "/v1/chat/completions"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found"}


class BadRequestError(ValueError):
    """A request that is not HTTP/1.1 as we speak it, or does not ask for a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request; header names are lower case."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def index(self) -> int | None:
        """The client's number for it: X-Request-Index, else an X-Request-Id that is a number."""
        for name in ("x-request-index", "x-request-id"):
            text = self.headers.get(name, "")
            if text.isdecimal() and len(text) <= _INDEX_DIGITS:
                return int(text)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a POST asks for. `prompt_tokens` counts words: the server has no tokenizer."""

    tokens: int
    prompt_tokens: int


def frame(payload: bytes) -> bytes:
    """One chunk of a chunked body (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event that carries JSON, as one chunk."""
    return frame(b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n")


def response(status: int, data: dict[str, Any]) -> bytes:
    """A whole JSON answer with its length."""
    body = json.dumps(data).encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Wire:
    """Ready bytes of every event of one route.

    `tokens[k]`: what is sent for token k; `tokens[0]` begins with the response head and, for
    chat, the event that only names the role. A request's last token comes from `last_token`.
    """

    def __init__(self, *, is_chat: bool) -> None:
        self._is_chat = is_chat
        self._kind = "chat.completion.chunk" if is_chat else "text_completion"
        role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        self._opening = _STREAM_HEAD + (self._event([role]) if is_chat else b"")
        self.tokens: list[bytes] = []
        self.reserve(1024)
        self.last_token = lru_cache(maxsize=4096)(self._last_token)

    def reserve(self, tokens: int) -> None:
        """Make `tokens` long enough for a request of this many tokens."""
        for k in range(len(self.tokens), tokens):
            self.tokens.append(self._token(k, None))

    def tail(self, order: Order) -> bytes:
        """Everything after the last token: usage, [DONE] and the last chunk."""
        usage = {
            "prompt_tokens": order.prompt_tokens,
            "completion_tokens": order.tokens,
            "total_tokens": order.prompt_tokens + order.tokens,
        }
        return self._event([], usage=usage) + frame(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    def _last_token(self, k: int) -> bytes:
        return self._token(k, "length")

    def _token(self, k: int, finish_reason: str | None) -> bytes:
        text = f" {k}"
        content = {"delta": {"content": text}} if self._is_chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
        return (self._opening if k == 0 else b"") + self._event([choice])

    def _event(self, choices: list[dict[str, Any]], **more: object) -> bytes:
        head = {"id": "cmpl-0", "object": self._kind, "created": 0, "model": MODEL}
        return event({**head, "choices": choices, **more})


def take_request(buffer: bytearray) -> HttpRequest | None:
    """Cut the first whole request off `buffer`; None if more bytes must come.

    Raises BadRequestError for what is not HTTP/1.1 with a Content-Length.
    """
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *lines = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    path, _, version = rest.partition(" ")
    if version != "HTTP/1.1":
        raise BadRequestError(f"{first[:60]!r}: not a request line of HTTP/1.1")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = headers.get("content-length", "0")
    if not length.isdecimal() or "transfer-encoding" in headers:
        raise BadRequestError("a body needs a Content-Length here, in bytes")
    size = end + 4 + int(length)
    if len(buffer) < size:
        return None
    body = bytes(buffer[end + 4 : size])
    del buffer[:size]
    return HttpRequest(method=method, path=path, headers=headers, body=body)


def read_order(request: HttpRequest) -> Order:
    """What a POST asks for; raises BadRequestError for anything but a stream of >= 1 tokens."""
    try:
        data = json.loads(request.body)
    except ValueError as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("stream") is not True:
        raise BadRequestError("stream: must be true; this server only streams")
    tokens = data.get("max_completion_tokens") or data.get("max_tokens", 16)
    if type(tokens) is not int or not 1 <= tokens <= MAX_TOKENS:
        raise BadRequestError(f"max_tokens={tokens!r}: must be an integer of 1 to {MAX_TOKENS}")
    return Order(tokens=tokens, prompt_tokens=_count_words(data))


def _count_words(data: dict[str, Any]) -> int:
    prompt = data.get("prompt")
    if isinstance(prompt, list):
        return len(prompt)
    if isinstance(prompt, str):
        return len(prompt.split())
    messages = data.get("messages")
    if not isinstance(messages, list):
        return 0
    return sum(len(str(m.get("content", "")).split()) for m in messages if isinstance(m, dict))
