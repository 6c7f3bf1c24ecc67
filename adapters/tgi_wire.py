"""TGI's native routes: a request's body, and the stream to chunks.

One event is one token, totals are in the last one, and there is no [DONE]. Source:
text-generation-inference 3.3.7, docs/openapi.json, `GenerateParameters` and `StreamResponse`.
"""

from typing import Any

import msgspec

from adapters.session import plain_text
from adapters.stream import NotUnderstoodError, StreamDecoder
from harness.types import Chunk, ChunkKind, Request

PROMPT_TOKENS_HEADER = "x-prompt-tokens"
_MAX_DIGITS = 18


def native_body(request: Request) -> dict[str, Any]:
    """What `/generate_stream` is asked: greedy at temperature 0, totals in the last event."""
    is_sampled = request.temperature > 0
    parameters: dict[str, Any] = {"max_new_tokens": request.max_output_tokens, "details": True}
    parameters |= {"do_sample": is_sampled}
    if is_sampled:
        parameters |= {"temperature": request.temperature, "seed": request.seed}
    if request.lora:
        parameters["adapter_id"] = request.lora
    return {"inputs": plain_text(request), "parameters": parameters}


class _Token(msgspec.Struct):
    text: str = ""
    special: bool = False


class _Details(msgspec.Struct):
    finish_reason: str | None = None
    generated_tokens: int | None = None
    input_length: int | None = None


class _Event(msgspec.Struct):
    token: _Token | None = None
    generated_text: str | None = None
    details: _Details | None = None


_EVENT = msgspec.json.Decoder(_Event)
_ANSWER = msgspec.json.Decoder(_Event | list[_Event])


class TgiDecoder(StreamDecoder):
    """Decodes one answer of `/generate_stream`: every event is one token, special ones too.

    Events are counted here: a message before the first token may have taken its `index`.
    """

    _total = 0

    def _event(self, payload: bytes) -> list[Chunk]:
        event = _EVENT.decode(payload)
        if event.token is None:
            raise NotUnderstoodError
        self._total += 1
        details = event.details
        total = details.generated_tokens if details else None
        self._is_complete = details is not None or event.generated_text is not None
        return [
            Chunk(
                kind=ChunkKind.TEXT,
                text="" if event.token.special else event.token.text,
                total_tokens=self._total if total is None else total,
                prompt_tokens=details.input_length if details else None,
                finish_reason=details.finish_reason if details else None,
            )
        ]

    def _answer(self, body: bytes) -> list[Chunk]:
        """Of `/generate`, or of `/`, which wraps it in a list."""
        answer = _ANSWER.decode(body)
        event = (answer[0] if answer else _Event()) if isinstance(answer, list) else answer
        if event.generated_text is None:
            raise NotUnderstoodError
        self._is_complete = True
        details = event.details or _Details()
        counted = self._head.headers.get(PROMPT_TOKENS_HEADER, "")
        is_count = counted.isdecimal() and len(counted) <= _MAX_DIGITS
        return [
            Chunk(
                kind=ChunkKind.TEXT,
                text=event.generated_text,
                total_tokens=details.generated_tokens,
                prompt_tokens=int(counted) if is_count else None,
                finish_reason=details.finish_reason,
            )
        ]
