"""The bytes of TGI's answers: its native routes, chat and completions, streamed or whole.

One event a token; [DONE] ends the streams of the OpenAI routes only; the headers of a whole answer
say what it took. Source: text-generation-inference 3.3.7, router/src/server.rs and chat.rs.
"""

from functools import lru_cache
from typing import Any

from harness.emulate.wires.http import json_response
from harness.emulate.wires.tgi.metrics import Spans, Watch
from harness.emulate.wires.tgi.named import LOGPROB, Named, prompt_tokens_of, word_token
from harness.emulate.wires.tgi.order import Form
from harness.emulate.wires.tgi.refusal import COMPUTE_TYPE, DONE, LAST, event, stream_head
from harness.emulate.wires.whole import Whole

_EVENTS_KEPT = 65_536


@lru_cache(maxsize=_EVENTS_KEPT)
def _native_event(k: int) -> bytes:
    """The event of a token that more follow: the same in every answer."""
    return event({"index": k + 1, "token": word_token(k), "generated_text": None, "details": None})


class StreamedAnswer:
    """An answer of which each token is sent when it comes."""

    __slots__ = ("_named", "_watch", "head")

    def __init__(self, named: Named, watch: Watch) -> None:
        self.head = stream_head(named.order)
        self._named = named
        self._watch = watch

    @property
    def started(self) -> bytes:
        """Nothing is sent, but being asked tells that the engine begins."""
        self._watch.begin()
        return b""

    def token(self, k: int) -> bytes:
        """The event of token `k`."""
        named = self._named
        if not named.order.form.is_openai:
            return _native_event(k)
        return event(named.chunk([named.choice(word_token(k), None)]))

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The event of the last token, and the end."""
        del cached_tokens
        self._watch.end(k + 1)
        return self._last(k) + LAST

    def _last(self, k: int) -> bytes:
        named, tokens = self._named, k + 1
        token = named.last_token(k)
        if not named.order.form.is_openai:
            text = {"index": tokens, "token": token, "generated_text": named.text(tokens)}
            return event({**text, "details": self._details(tokens)})
        usage = named.usage(tokens)
        if named.order.form is Form.COMPLETIONS:
            choice = named.choice(token, named.finish_reason)
            return event(named.chunk([choice], usage)) + DONE
        end = event(named.chunk([named.choice(token, named.openai_reason)]))
        return end + (event(named.chunk([], usage)) if named.order.has_usage else b"") + DONE

    def _details(self, tokens: int) -> dict[str, Any] | None:
        named = self._named
        if not named.order.has_details:
            return None
        return {
            "finish_reason": named.finish_reason,
            "generated_tokens": tokens,
            "seed": named.seed,
            "input_length": named.prompt_tokens,
        }


class WholeAnswer(Whole):
    """An answer that is sent when it is complete."""

    __slots__ = ("_named", "_watch")

    def __init__(self, named: Named, watch: Watch) -> None:
        self._named = named
        self._watch = watch

    @property
    def started(self) -> bytes:
        """Nothing is sent, but being asked tells that the engine begins."""
        self._watch.begin()
        return b""

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it, with what it took in the headers."""
        del cached_tokens
        spans = self._watch.end(k + 1)
        form = self._named.order.form
        body: Any = self._openai(k) if form.is_openai else self._native(k)
        headers = self._headers(spans)
        return json_response(200, [body] if form is Form.COMPAT else body, headers)

    def _native(self, k: int) -> dict[str, Any]:
        named, tokens = self._named, k + 1
        body: dict[str, Any] = {"generated_text": named.text(tokens)}
        if not named.order.has_details:
            return body
        prefill = [
            {"id": one["id"], "text": one["text"], "logprob": LOGPROB if one["start"] else None}
            for one in (prompt_tokens_of(named.order.prompt) if named.order.has_prefill else ())
        ]
        details = {
            "finish_reason": named.finish_reason,
            "generated_tokens": tokens,
            "seed": named.seed,
            "prefill": prefill,
            "tokens": [*map(word_token, range(k)), named.last_token(k)],
        }
        return {**body, "details": details}

    def _openai(self, k: int) -> dict[str, Any]:
        named, tokens = self._named, k + 1
        is_chat = named.order.form is Form.CHAT
        text = named.text(tokens)
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text}}
        choice = said if is_chat else {"text": text}
        end = {"logprobs": None, "finish_reason": named.openai_reason}
        return {
            "object": "chat.completion" if is_chat else "text_completion",
            "id": "",
            "created": named.created,
            "model": named.model,
            "system_fingerprint": named.fingerprint,
            "choices": [{"index": 0, **choice, **end}],
            "usage": named.usage(tokens),
        }

    def _headers(self, spans: Spans) -> dict[str, str]:
        named = self._named
        return {
            "x-compute-type": COMPUTE_TYPE,
            "x-compute-time": f"{spans.total_s:.9f}",
            "x-compute-characters": str(len(named.order.prompt)),
            "x-total-time": _ms(spans.total_s),
            "x-validation-time": "0",
            "x-queue-time": _ms(spans.queue_s),
            "x-inference-time": _ms(spans.inference_s),
            "x-time-per-token": _ms(spans.token_s),
            "x-prompt-tokens": str(named.prompt_tokens),
            "x-generated-tokens": str(spans.tokens),
        }


def _ms(seconds: float) -> str:
    return str(int(seconds * 1e3))
