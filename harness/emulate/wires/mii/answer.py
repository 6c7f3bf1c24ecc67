"""The bytes of DeepSpeed-MII's answers, over gRPC and from its OpenAI server.

Source: DeepSpeed-MII 0.3.3 (mii/batching/ragged_batching.py, mii/entrypoints/openai_api_server.py).
A stream has a message for each token, then one without text that says why it ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from adapters.mii_wire import Ask as MiiAsk
from adapters.mii_wire import Reply, reply_message
from harness.calibrate.server.grpc_answer import TokenFrames, ending, head, tail
from harness.calibrate.server.wire import frame
from harness.emulate.wires.http import json_response
from harness.emulate.wires.openai.answer import STREAM_HEAD, word

_END = frame(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class StreamedReplies:
    """GeneratorReplyStream: a message for each token; the head goes with the first."""

    __slots__ = ("_frames", "_tail", "head", "started")

    def __init__(self, stream: int, *, prompt_tokens: int, tokens: int, finish_reason: str) -> None:
        ask = MiiAsk(tokens=tokens, prompt_tokens=prompt_tokens)
        self.head = self.started = b""
        self._frames = TokenFrames(stream, ask, word)
        self._tail = tail(stream, ask, finish_reason)

    def token(self, k: int) -> bytes:
        """The message of token `k`."""
        return self._frames[k]

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The message of the last token, then the one that ends the stream."""
        del cached_tokens
        return self._frames[k] + self._tail


class WholeReply:
    """An answer of one message: GeneratorReply, or a stream that did not ask to be one."""

    __slots__ = ("_finish_reason", "_prompt_tokens", "_stream", "head", "started")

    def __init__(self, stream: int, *, prompt_tokens: int, tokens: int, finish_reason: str) -> None:
        del tokens
        self.head = self.started = b""
        self._stream = stream
        self._prompt_tokens = prompt_tokens
        self._finish_reason = finish_reason

    def token(self, k: int) -> bytes:
        """Nothing yet."""
        del k
        return b""

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it."""
        del cached_tokens
        reply = Reply(
            text="".join(map(word, range(k + 1))),
            finish_reason=self._finish_reason,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=k + 1,
        )
        return head(self._stream) + ending(self._stream, reply_message(reply))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiNamed:
    """What an answer of the OpenAI server says of its request."""

    number: int
    model: str
    is_chat: bool

    @property
    def id(self) -> str:
        """The answer's own name."""
        return f"{'chatcmpl' if self.is_chat else 'cmpl'}-{self.number:022d}"

    def event(self, choice: Mapping[str, object]) -> bytes:
        """One event. What was not set is not written: neither `created`, nor a chat's `object`."""
        kind = {} if self.is_chat else {"object": "text_completion"}
        data = {"id": self.id, **kind, "model": self.model, "choices": [{"index": 0, **choice}]}
        return frame(b"data: " + msgspec.json.encode(data) + b"\n\n")

    def text(self, text: str, finish_reason: str | None) -> bytes:
        """The event of a message of the engine."""
        if self.is_chat:
            return self.event({"delta": {"content": text}, "finish_reason": finish_reason})
        return self.event({"text": text, "logprobs": None, "finish_reason": finish_reason})

    def begin(self) -> bytes:
        """Head, and a chat's role: before the engine is asked."""
        role = {"delta": {"role": "assistant"}, "finish_reason": None}
        return STREAM_HEAD + (self.event(role) if self.is_chat else b"")

    def empty_stream(self) -> bytes:
        """What comes of a stream that the engine refuses."""
        return self.begin() + _END


class StreamedEvents:
    """A stream of the OpenAI server: no usage, an event of its own for the reason of the end."""

    __slots__ = ("_finish_reason", "_named", "head", "started")

    def __init__(
        self, named: OpenAiNamed, *, prompt_tokens: int, finish_reason: str, created: int
    ) -> None:
        del prompt_tokens, created
        self.head = named.begin()
        self.started = b""
        self._named = named
        self._finish_reason = finish_reason

    def token(self, k: int) -> bytes:
        """The event of token `k`."""
        return self._named.text(word(k), None)

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The event of the last token, the one without text, [DONE]."""
        del cached_tokens
        return self.token(k) + self._named.text("", self._finish_reason) + _END


class WholeJson:
    """A whole answer of the OpenAI server. Its usage is counted from the texts."""

    __slots__ = ("_created", "_finish_reason", "_named", "_prompt_tokens", "head", "started")

    def __init__(
        self, named: OpenAiNamed, *, prompt_tokens: int, finish_reason: str, created: int
    ) -> None:
        self.head = self.started = b""
        self._named = named
        self._prompt_tokens = prompt_tokens
        self._finish_reason = finish_reason
        self._created = created

    def token(self, k: int) -> bytes:
        """Nothing yet."""
        del k
        return b""

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it."""
        del cached_tokens
        named, text = self._named, "".join(map(word, range(k + 1)))
        content: dict[str, object] = {"text": text, "logprobs": None}
        if named.is_chat:
            content = {"message": {"role": "assistant", "content": text}}
        body = {
            "id": named.id,
            "object": "chat.completion" if named.is_chat else "text_completion",
            "created": self._created,
            "model": named.model,
            "choices": [{"index": 0, **content, "finish_reason": self._finish_reason}],
            "usage": {
                "prompt_tokens": self._prompt_tokens,
                "total_tokens": self._prompt_tokens + k + 1,
                "completion_tokens": k + 1,
            },
        }
        return json_response(200, body)
