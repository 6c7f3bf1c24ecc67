"""The bytes of trtllm-serve's answers, as TensorRT-LLM 1.2's serve/ writes them.

Each event is `data: {json} ` with a space before its line ends. A chat's token events leave null
fields out, those of completions keep them; the usage event keeps them too.
"""

import msgspec

from harness.calibrate.server.wire import frame
from harness.emulate.wires.http import json_response
from harness.emulate.wires.openai.answer import STREAM_HEAD, Named, word
from harness.emulate.wires.whole import Whole

_DATA = b'data: {"id":"'
_EVENT_END = b"} \n\n"
_DONE = frame(b"data: [DONE]\n\n") + b"0\r\n\r\n"
_NO_CHOICE = b',"choices":[],"usage":'


class StreamedAnswer:
    """An answer of which each token is sent when it comes."""

    __slots__ = ("_has_usage", "_name", "_named", "head", "started")

    def __init__(self, named: Named, *, has_usage: bool) -> None:
        kind = "chat.completion.chunk" if named.is_chat else "text_completion"
        self.head, self.started = STREAM_HEAD, b""
        self._named = named
        self._name = _DATA + named.name(kind)
        self._has_usage = has_usage

    def token(self, k: int) -> bytes:
        """The event of token `k`; before the first one a chat names the role."""
        return self._token(k, None)

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The event of the last token, usage unless it is refused, and the end."""
        named = self._named
        end = self._token(k, named.finish_reason)
        if self._has_usage:
            usage = msgspec.json.encode(usage_of(named, k + 1, cached_tokens))
            end += frame(self._name + _NO_CHOICE + usage + _EVENT_END)
        return end + _DONE

    def _token(self, k: int, finish_reason: str | None) -> bytes:
        text = msgspec.json.encode(word(k))
        if not self._named.is_chat:
            reason = b"null" if finish_reason is None else b'"%b"' % finish_reason.encode()
            rest = (
                b',"choices":[{"index":0,"text":%b,"token_ids":null,"logprobs":null,'
                b'"finish_reason":%b,"stop_reason":null,"avg_decoded_tokens_per_iter":null}],'
                b'"usage":null' % (text, reason)
            )
            return frame(self._name + rest + _EVENT_END)
        reason = b"" if finish_reason is None else b',"finish_reason":"%b"' % finish_reason.encode()
        rest = b',"choices":[{"index":0,"delta":{"content":%b}%b}]' % (text, reason)
        event = frame(self._name + rest + _EVENT_END)
        if k > 0:
            return event
        role = b',"choices":[{"index":0,"delta":{"role":"assistant"}}]'
        return frame(self._name + role + _EVENT_END) + event


class WholeAnswer(Whole):
    """An answer that is sent when it is complete."""

    __slots__ = ("_named",)

    def __init__(self, named: Named) -> None:
        self._named = named

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it."""
        named = self._named
        text = "".join(word(one) for one in range(k + 1))
        choice: dict[str, object] = {"index": 0, "text": text, "token_ids": None}
        more = {"context_logits": None, "disaggregated_params": None}
        if named.is_chat:
            message = {"role": "assistant", "content": text, "tool_calls": []}
            choice, more = {"index": 0, "message": message}, {"disaggregated_params": None}
        end = {"logprobs": None, "finish_reason": named.finish_reason, "stop_reason": None}
        body = {
            "id": named.id,
            "object": "chat.completion" if named.is_chat else "text_completion",
            "created": named.created,
            "model": named.model,
            "choices": [{**choice, **end, **more, "avg_decoded_tokens_per_iter": None}],
            "usage": usage_of(named, k + 1, cached_tokens),
        }
        return json_response(200, body)


def usage_of(named: Named, tokens: int, cached_tokens: int) -> dict[str, object]:
    """The usage of a complete answer; the cached tokens are always told."""
    return {
        "prompt_tokens": named.prompt_tokens,
        "total_tokens": named.prompt_tokens + tokens,
        "completion_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
