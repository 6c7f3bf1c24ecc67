"""TGI's native stream to chunks: one event a token, totals in the last one, no [DONE].

Source: text-generation-inference 3.3.7, docs/openapi.json, `StreamResponse`.
"""

import msgspec

from adapters.stream import NotUnderstoodError, StreamDecoder
from harness.types import Chunk, ChunkKind


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
    index: int | None = None


_EVENT = msgspec.json.Decoder(_Event)


class TgiDecoder(StreamDecoder):
    """Decodes one answer of `/generate_stream`: every event is one token, special ones too."""

    _total = 0

    def _event(self, payload: bytes) -> list[Chunk]:
        event = _EVENT.decode(payload)
        if event.token is None:
            raise NotUnderstoodError
        self._total = event.index if event.index is not None else self._total + 1
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
        event = _EVENT.decode(body)
        if event.generated_text is None:
            raise NotUnderstoodError
        self._is_complete = True
        details = event.details or _Details()
        return [
            Chunk(
                kind=ChunkKind.TEXT,
                text=event.generated_text,
                total_tokens=details.generated_tokens,
                finish_reason=details.finish_reason,
            )
        ]
