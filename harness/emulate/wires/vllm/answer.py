"""The bytes of vLLM's answers, field by field as vLLM 0.32 sends them (as captured).

Beside OpenAI's fields come the stop reason, token ids where they are asked for (else null), and
the engine's fingerprint on the last event of a stream that carries JSON.
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from harness.calibrate.server.wire import frame
from harness.emulate.wires.openai.answer import (
    STREAM_END,
    Named,
    StreamedAnswer,
    Tail,
    WholeAnswer,
    reason_json,
    word,
)
from harness.emulate.wires.openai.order import Order
from harness.emulate.wires.prompt import token_ids

VERSION = "0.32.0"
FINGERPRINT = f"vllm-{VERSION}-emulated"
_FINGERPRINT = b',"system_fingerprint":"%b"' % FINGERPRINT.encode()
_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def _text_tail(text: bytes, finish_reason: str | None) -> bytes:
    return (
        b',"choices":[{"index":0,"text":%b,"logprobs":null,"finish_reason":%b,"stop_reason":null,'
        b'"prompt_token_ids":null,"token_ids":null}]}\n\n'
    ) % (text, reason_json(finish_reason))


def _delta_tail(text: bytes, finish_reason: str | None) -> bytes:
    stop = b"" if finish_reason is None else b'"stop_reason":null,'
    return (
        b',"choices":[{"index":0,"delta":{"content":%b},"logprobs":null,"finish_reason":%b,'
        b'%b"token_ids":null}]}\n\n'
    ) % (text, reason_json(finish_reason), stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmNamed(Named):
    """With the prompt as ids where `return_token_ids` asks for them, else None.

    `has_cache` stands for the server's `--enable-prompt-tokens-details`.
    """

    prompt_ids: list[int] | None = None

    def usage(self, tokens: int, cached_tokens: int) -> dict[str, object]:
        """The usage of a complete answer; a chat's details have one count more."""
        usage = self.running_usage(tokens)
        if self.has_cache:
            created = {"created_cache_tokens": 0} if self.is_chat else {}
            usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens, **created}
        return usage

    def running_usage(self, tokens: int) -> dict[str, object]:
        """The usage of an answer under way: without details."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + tokens,
            "completion_tokens": tokens,
        }

    def ids(self, *words: int) -> list[int] | None:
        """The ids of tokens of the answer, where they are asked for."""
        return None if self.prompt_ids is None else [token_ids(word(k))[0] for k in words]


class VllmStream(StreamedAnswer):
    """An answer whose events carry neither ids nor usage: the pieces are ready."""

    __slots__ = ()
    tails: ClassVar[tuple[Tail, Tail]] = (_text_tail, _delta_tail)
    role = (
        b',"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
        b'"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}\n\n'
    )

    def __init__(self, named: VllmNamed, tokens: int, *, has_usage: bool) -> None:
        super().__init__(named, tokens, has_usage=has_usage)
        self.head = _HEAD

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The last token, usage if asked for, the fingerprint on the later of the two."""
        named = self._named
        rest = self._tail(msgspec.json.encode(word(k)), named.finish_reason)
        begun = self._event(self.role) if k == 0 and named.is_chat else b""
        if not self._has_usage:
            rest = rest.removesuffix(b"}\n\n") + _FINGERPRINT + b"}\n\n"
            return begun + self._event(rest) + STREAM_END
        usage = msgspec.json.encode(named.usage(k + 1, cached_tokens))
        usage_rest = b',"choices":[],"usage":%b%b}\n\n' % (usage, _FINGERPRINT)
        return begun + self._event(rest) + self._event(usage_rest) + STREAM_END


class VllmFullStream:
    """An answer whose events carry token ids, the running usage, or both: made as they come."""

    __slots__ = ("_has_running_usage", "_has_usage", "_named", "head", "started")

    def __init__(self, named: VllmNamed, *, has_usage: bool, has_running_usage: bool) -> None:
        self.head, self.started = _HEAD, b""
        self._named = named
        self._has_usage = has_usage
        self._has_running_usage = has_usage and has_running_usage

    def token(self, k: int) -> bytes:
        """The event of token `k`; before the first one a chat names the role."""
        return self._begun(k) + self._event(self._choice(k, None), tokens=k + 1)

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The last token, usage if asked for, and the end."""
        choice, mark = self._choice(k, self._named.finish_reason), FINGERPRINT
        if not self._has_usage:
            return self._begun(k) + self._event(choice, system_fingerprint=mark) + STREAM_END
        usage = self._named.usage(k + 1, cached_tokens)
        last = self._event(choice, tokens=k + 1)
        end = self._event(None, usage=usage, system_fingerprint=mark)
        return self._begun(k) + last + end + STREAM_END

    def _begun(self, k: int) -> bytes:
        named = self._named
        if k or not named.is_chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        prompt = {"prompt_token_ids": named.prompt_ids, "prompt_text": None}
        return self._event(choice, tokens=0, **prompt)

    def _choice(self, k: int, finish_reason: str | None) -> dict[str, object]:
        named = self._named
        end: dict[str, object] = {"logprobs": None, "finish_reason": finish_reason}
        if named.is_chat:
            stop = {} if finish_reason is None else {"stop_reason": None}
            content: dict[str, object] = {"delta": {"content": word(k)}}
            return {"index": 0, **content, **end, **stop, "token_ids": named.ids(k)}
        prompt = named.prompt_ids if k == 0 else None
        ids = {"prompt_token_ids": prompt, "token_ids": named.ids(k)}
        return {"index": 0, "text": word(k), **end, "stop_reason": None, **ids}

    def _event(
        self, choice: dict[str, object] | None, tokens: int | None = None, **more: object
    ) -> bytes:
        named = self._named
        event: dict[str, object] = {
            "id": named.id,
            "object": "chat.completion.chunk" if named.is_chat else "text_completion",
            "created": named.created,
            "model": named.model,
            "choices": [] if choice is None else [choice],
        }
        if tokens is not None and self._has_running_usage:
            event["usage"] = named.running_usage(tokens)
        return frame(b"data: " + msgspec.json.encode(event | more) + b"\n\n")


class VllmWhole(WholeAnswer):
    """An answer that is sent when it is complete."""

    __slots__ = ("_vllm",)

    def __init__(self, named: VllmNamed) -> None:
        super().__init__(named)
        self._vllm = named

    def _body(self, text: str, tokens: int, cached_tokens: int) -> dict[str, object]:
        named = self._vllm
        usage = named.usage(tokens, cached_tokens)
        created = {"created_cache_tokens": 0 if named.is_chat else None, "multimodal_tokens": None}
        details = {"cached_tokens": cached_tokens, **created} if named.has_cache else None
        usage["prompt_tokens_details"] = details
        usage["completion_tokens_details"] = None
        end = {"logprobs": None, "finish_reason": named.finish_reason, "stop_reason": None}
        ids = {"token_ids": named.ids(*range(tokens))}
        prompt = {"prompt_logprobs": None, "prompt_token_ids": named.prompt_ids}
        transfer = dict.fromkeys(("kv_transfer_params", "ec_transfer_params", "metrics"))
        kind = "chat.completion" if named.is_chat else "text_completion"
        head: dict[str, object] = {"id": named.id, "object": kind, "created": named.created}
        head["model"] = named.model
        mark = {"service_tier": None, "system_fingerprint": FINGERPRINT, "usage": usage}
        if not named.is_chat:
            choice = {"index": 0, "text": text, **end, **ids, **prompt, "routed_experts": None}
            return {**head, "choices": [choice], **mark, **transfer}
        empty = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))
        message = {"message": {"role": "assistant", "content": text, **empty}}
        chat = {"index": 0, **message, **end, **ids, "routed_experts": None}
        last = {**prompt, "prompt_text": None, **transfer}
        return {**head, "choices": [chat], **mark, **last}


def vllm_answer(
    named: VllmNamed, tokens: int, order: Order
) -> VllmStream | VllmFullStream | VllmWhole:
    """The answer that this order asks for."""
    if not order.is_stream:
        return VllmWhole(named)
    if named.prompt_ids is None and not order.has_running_usage:
        return VllmStream(named, tokens, has_usage=order.has_usage)
    return VllmFullStream(
        named, has_usage=order.has_usage, has_running_usage=order.has_running_usage
    )
