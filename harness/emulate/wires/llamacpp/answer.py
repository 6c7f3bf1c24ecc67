"""The bytes of an answer of llama.cpp's server: streamed or whole, OpenAI's forms and its own.

As captured from llama-server b11434: headers when a slot begins with the prompt, one event a
token, one event more with the reason of the end, usage and timings, [DONE] on OpenAI's routes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from harness.calibrate.server.wire import frame
from harness.emulate.wires.llamacpp.http import http_headers, told_json
from harness.emulate.wires.llamacpp.order import Form
from harness.emulate.wires.llamacpp.told import Told

_DONE = frame(b"data: [DONE]\n\n")
_LAST_CHUNK = b"0\r\n\r\n"


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(data)


class LlamaStream:
    """An answer of which each token is sent when it comes."""

    __slots__ = ("_tail", "head", "started", "told")

    def __init__(self, told: Told) -> None:
        self.told = told
        self.head = b""
        more = {**http_headers(closes=told.closes), "X-Accel-Buffering": "no"}
        more |= {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in more.items())
        self.started = b"HTTP/1.1 200 OK\r\n" + lines.encode() + b"\r\n"
        self._tail = b"," + msgspec.json.encode(told.named(self._kind))[1:] + b"\n\n"

    @property
    def _kind(self) -> str:
        form = self.told.order.form
        return form.value + (".chunk" if form is Form.CHAT else "")

    def token(self, k: int) -> bytes:
        """The event of token `k`; in a chat the role goes before the first, in one HTTP chunk."""
        told, text = self.told, msgspec.json.encode(self.told.text(k))
        match told.order.form:
            case Form.COMPLETIONS:
                choice = b'{"text":%b,"index":0,"logprobs":null,"finish_reason":null}' % text
                return frame(self._choices(choice))
            case Form.CHAT:
                if text == b'""':
                    return b""  # the end of an answer has no event of its own in a chat
                return frame((self._role() if k == 0 else b"") + self._delta(b'"content":' + text))
            case Form.NATIVE:
                return frame(self._native(k))

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The event of the last token, then the one that says how it ended, and the end."""
        told, tokens = self.told, k + 1
        usage = {"usage": told.usage(tokens, cached_tokens)}
        timings = {"timings": told.timings(tokens, cached_tokens)}
        match told.order.form:
            case Form.COMPLETIONS:
                choice = {"text": "", "index": 0, "logprobs": None}
                choice |= {"finish_reason": told.finish_reason}
                named = told.named(self._kind)
                end = frame(_event({"choices": [choice], **named, **usage, **timings})) + _DONE
            case Form.CHAT:
                end = frame(self._chat_end(usage, timings)) + _DONE
            case Form.NATIVE:
                end = frame(_event(told.native(tokens, cached_tokens, "")))
        return self.token(k) + end + _LAST_CHUNK

    def _chat_end(self, usage: dict[str, Any], timings: dict[str, Any]) -> bytes:
        choice = {"finish_reason": self.told.finish_reason, "index": 0, "delta": {}}
        named = self.told.named(self._kind)
        opening = self._role() if self.told.length == 1 and not self.told.text(0) else b""
        if not self.told.order.has_usage:
            return opening + _event({"choices": [choice], **named, **timings})
        end = _event({"choices": [choice], **named})
        return opening + end + _event({"choices": [], **named, **usage, **timings})

    def _role(self) -> bytes:
        return self._delta(b'"role":"assistant","content":null')

    def _delta(self, fields: bytes) -> bytes:
        return self._choices(b'{"finish_reason":null,"index":0,"delta":{%b}}' % fields)

    def _choices(self, choice: bytes) -> bytes:
        return b'data: {"choices":[' + choice + b"]" + self._tail

    def _native(self, k: int) -> bytes:
        told = self.told
        event: dict[str, Any] = {"index": 0, "content": told.text(k), "tokens": [k]}
        event |= {"stop": False, "id_slot": -1, "tokens_predicted": k + 1}
        event["tokens_evaluated"] = told.prompt_tokens
        if told.order.has_timings:
            event["timings"] = told.timings(k + 1, told.sequence.cached_tokens or 0)
        return _event(event)


class LlamaWhole:
    """An answer that is sent when it is complete."""

    __slots__ = ("head", "started", "told")

    def __init__(self, told: Told) -> None:
        self.head = self.started = b""
        self.told = told

    def token(self, k: int) -> bytes:
        """Nothing yet."""
        del k
        return b""

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it."""
        told, tokens = self.told, k + 1
        text = "".join(map(told.text, range(tokens)))
        form = told.order.form
        if form is Form.NATIVE:
            body = told.native(tokens, cached_tokens, text)
        else:
            choice: dict[str, Any] = {"finish_reason": told.finish_reason, "index": 0}
            if form is Form.CHAT:
                choice["message"] = {"role": "assistant", "content": text}
            else:
                choice |= {"text": text, "logprobs": None}
            body = {"choices": [choice], **told.named(form.value)}
            body |= {"usage": told.usage(tokens, cached_tokens)}
            body |= {"timings": told.timings(tokens, cached_tokens)}
        return told_json(body, closes=told.closes)
