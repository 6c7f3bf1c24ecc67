"""The bytes of SGLang's answers on its OpenAI routes, streamed or whole.

In the form of SGLang 0.5.23, srt/entrypoints/openai (source, not captured): nothing is sent before
the first token, headers included; a completion's last token carries finish_reason, a chat has an
event of its own for it; then usage if it is asked for, then [DONE].
"""

from typing import Any, Protocol

import msgspec

from harness.calibrate.server.wire import frame
from harness.emulate.wires.http import json_response
from harness.emulate.wires.openai.answer import STREAM_HEAD, Named, word
from harness.emulate.wires.whole import Whole

FULL_QUEUE = "The request queue is full."
_EOS_TOKEN = 2
_END = frame(b"data: [DONE]\n\n") + b"0\r\n\r\n"
_AFTER_TEXT = b',"logprobs":null,"finish_reason":null,"matched_stop":null}]'


class Watch(Protocol):
    """Who is told of tokens, for the metrics."""

    def token(self, k: int) -> None:
        """Token `k` of some answer comes with the step that has begun."""
        ...

    def ended(self, named: Named, tokens: int, cached_tokens: int) -> None:
        """An answer of so many tokens is complete with it."""
        ...


def usage(named: Named, tokens: int, cached_tokens: int, *, with_nulls: bool) -> dict[str, Any]:
    """The usage of a complete answer, as of a server with --enable-cache-report."""
    details: dict[str, Any] = {"cached_tokens": cached_tokens}
    if with_nulls:
        details |= {"image_tokens": None, "audio_tokens": None, "video_tokens": None}
    counts = {
        "prompt_tokens": named.prompt_tokens,
        "total_tokens": named.prompt_tokens + tokens,
        "completion_tokens": tokens,
        "prompt_tokens_details": details,
        "reasoning_tokens": 0,
    }
    return counts | ({"completion_tokens_details": None} if with_nulls else {})


def matched_stop(named: Named) -> int | None:
    """The token that ended the answer, if one did."""
    return _EOS_TOKEN if named.finish_reason == "stop" else None


class StreamedAnswer:
    """An answer of which each token is sent when it comes; its head comes with the first."""

    __slots__ = ("_begin", "_has_usage", "_named", "_rest", "_watch", "head", "started")

    def __init__(self, named: Named, watch: Watch, *, has_usage: bool) -> None:
        self.head = self.started = b""
        self._named = named
        self._watch = watch
        self._has_usage = has_usage
        kind = "chat.completion.chunk" if named.is_chat else "text_completion"
        self._begin = b'data: {"id":"' + named.name(kind) + b',"choices":['
        self._rest = _AFTER_TEXT + (b"}\n\n" if named.is_chat else b',"usage":null}\n\n')

    def token(self, k: int) -> bytes:
        """The event of token `k`; before the first one the headers, and a chat's role."""
        self._watch.token(k)
        return self._opening(k) + self._event(k)

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The event of the last token, usage if it is asked for, and the end."""
        self._watch.token(k)
        self._watch.ended(self._named, k + 1, cached_tokens)
        named, opening = self._named, self._opening(k)
        end = b'"finish_reason":"%b","matched_stop":%b}]' % (
            named.finish_reason.encode(),
            msgspec.json.encode(matched_stop(named)),
        )
        if named.is_chat:
            delta = b'{"index":0,"delta":{"reasoning_content":null},"logprobs":null,'
            tokens = self._event(k) + frame(self._begin + delta + end + b"}\n\n")
        else:
            text = b'{"index":0,"text":%b,"logprobs":null,' % msgspec.json.encode(word(k))
            tokens = frame(self._begin + text + end + b',"usage":null}\n\n')
        return opening + tokens + self._usage(k + 1, cached_tokens) + _END

    def _opening(self, k: int) -> bytes:
        if k:
            return b""
        if not self._named.is_chat:
            return STREAM_HEAD
        role = b'{"index":0,"delta":{"reasoning_content":null,"role":"assistant","content":""}'
        return STREAM_HEAD + frame(self._begin + role + self._rest)

    def _event(self, k: int) -> bytes:
        text = msgspec.json.encode(word(k))
        choice = b'{"index":0,"text":%b' % text
        if self._named.is_chat:
            choice = b'{"index":0,"delta":{"reasoning_content":null,"content":%b}' % text
        return frame(self._begin + choice + self._rest)

    def _usage(self, tokens: int, cached_tokens: int) -> bytes:
        if not self._has_usage:
            return b""
        is_chat = self._named.is_chat
        counts = usage(self._named, tokens, cached_tokens, with_nulls=is_chat)
        return frame(self._begin + b'],"usage":%b}\n\n' % msgspec.json.encode(counts))


class WholeAnswer(Whole):
    """An answer that is sent when it is complete."""

    __slots__ = ("_named", "_watch")

    def __init__(self, named: Named, watch: Watch) -> None:
        self._named = named
        self._watch = watch

    def token(self, k: int) -> bytes:
        """Nothing yet."""
        self._watch.token(k)
        return b""

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it."""
        self._watch.token(k)
        self._watch.ended(self._named, k + 1, cached_tokens)
        named = self._named
        text = "".join(word(one) for one in range(k + 1))
        content: dict[str, object] = {"text": text}
        if named.is_chat:
            message = {"role": "assistant", "content": text, "reasoning_content": None}
            content = {"message": message}
        end = {
            "logprobs": None,
            "finish_reason": named.finish_reason,
            "matched_stop": matched_stop(named),
        }
        return json_response(
            200,
            {
                "id": named.id,
                "object": "chat.completion" if named.is_chat else "text_completion",
                "created": named.created,
                "model": named.model,
                "choices": [{"index": 0, **content, **end}],
                "usage": usage(named, k + 1, cached_tokens, with_nulls=True),
                "metadata": {"weight_version": "default"},
            },
        )


def flat_error(status: int, message: str, kind: str) -> bytes:
    """An error in place of an answer."""
    return json_response(status, _error(status, message, kind))


def streamed_error(status: int, message: str, kind: str) -> bytes:
    """An error in place of a stream: HTTP 200, one event, [DONE]."""
    event = b"data: %b\n\n" % msgspec.json.encode({"error": _error(status, message, kind)})
    return STREAM_HEAD + frame(event) + _END


def _error(status: int, message: str, kind: str) -> dict[str, object]:
    error = {"object": "error", "message": message, "type": kind, "param": None}
    return {**error, "code": status}
