"""The part of a decoder that every HTTP engine shares: status, JSON body or event stream, end.

A subclass says what one event and one whole JSON body mean. After an ERROR chunk nothing follows.
"""

from collections.abc import Callable

import msgspec

from adapters.failures import error_chunk, error_message, excerpt, json_value, status_error
from adapters.sse import SseParser
from harness.types import Chunk, ChunkKind, ErrorClass, ResponseHead

_DONE = b"[DONE]"
_MAX_BODY_BYTES = 8 * 1024 * 1024
_DONE_CHUNK = Chunk(kind=ChunkKind.END)


class NotUnderstoodError(ValueError):
    """An event that is JSON but not this engine's; becomes an ERROR chunk, never leaves here."""


class StreamDecoder:
    """Decodes one answer. A subclass gives `_event` and `_answer`, and sets `_is_complete`.

    Both may raise `NotUnderstoodError` or a msgspec error. `_is_complete`: the engine has said
    that the answer is whole (finish_reason, [DONE], or the engine's own mark).
    """

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._is_success = 200 <= head.status < 300  # noqa: PLR2004  # the HTTP status class
        self._sse: SseParser | None = None
        self._body = bytearray()
        self._is_body = not self._is_success
        self._is_over = False
        self._is_complete = False

    def _event(self, payload: bytes) -> list[Chunk]:
        """The chunks of one event."""
        raise NotImplementedError

    def _answer(self, body: bytes) -> list[Chunk]:
        """The chunks of a whole answer that came as one JSON body."""
        raise NotImplementedError

    def feed(self, data: bytes) -> list[Chunk]:
        """See `harness.adapter.Decoder`."""
        if self._sse is None and not self._is_stream(data):
            return []
        if self._is_over or self._sse is None:
            return []
        chunks: list[Chunk] = []
        for payload in self._sse.feed(data):
            chunks += self._take(payload, self._event)
            if self._is_over:
                return chunks
        if self._sse.overflowed:
            chunks += self._fail(ErrorClass.STREAM_ERROR, "an event above 8 MiB in the stream")
        return chunks

    def _is_stream(self, data: bytes) -> bool:
        """Keep what is no event stream for the end; the first byte that is no space decides."""
        if not self._is_body:
            data = data.lstrip()
            if not data:
                return False
            self._is_body = data[:1] in {b"{", b"[", b"<"}
            if not self._is_body:
                self._sse = SseParser()
                self._body += data[:80]  # kept for the message if no event ever comes
                return True
        self._body += data[: _MAX_BODY_BYTES - len(self._body)]
        return False

    def _take(self, payload: bytes, decode: Callable[[bytes], list[Chunk]]) -> list[Chunk]:
        if payload.startswith(_DONE) and payload.strip() == _DONE:
            self._is_complete = self._is_over = True
            return [_DONE_CHUNK]
        try:
            chunks = decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            said = error_message(json_value(payload))
            message = said or f"not understood in the stream: {excerpt(payload)}"
            return self._fail(ErrorClass.STREAM_ERROR, message)
        self._is_over = any(chunk.error is not None for chunk in chunks)
        return chunks

    def _fail(self, error: ErrorClass, message: str) -> list[Chunk]:
        self._is_over = True
        return [error_chunk(error, message)]

    def end(self) -> list[Chunk]:
        """See `harness.adapter.Decoder`."""
        if self._is_over:
            return []
        if not self._is_success:
            self._is_over = True
            return [status_error(self._head, self._body)]
        chunks = self._end_of_stream() if self._sse is not None else self._end_of_body()
        if not self._is_over and not self._is_complete:
            chunks += self._fail(ErrorClass.INCOMPLETE_STREAM, self._why_incomplete(chunks))
        self._is_over = True
        return chunks

    def _end_of_stream(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        for payload in self._sse.end() if self._sse else []:
            taken = self._take(payload, self._event)
            if self._is_cut(payload, taken):
                self._is_over = False  # a cut event is an incomplete stream, not garbage
            else:
                chunks += taken
        return chunks

    def _is_cut(self, payload: bytes, taken: list[Chunk]) -> bool:
        return bool(taken) and taken[-1].error is not None and json_value(payload) is None

    def _end_of_body(self) -> list[Chunk]:
        body = bytes(self._body)
        if not body:
            return []
        said = error_message(json_value(body))
        if said is not None:
            return self._fail(ErrorClass.ERROR_BODY, said)
        try:
            chunks = self._answer(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            message = f"HTTP {self._head.status} with neither stream nor answer: {excerpt(body)}"
            return self._fail(ErrorClass.ERROR_BODY, message)
        self._is_over = any(chunk.error is not None for chunk in chunks)
        return chunks

    def _why_incomplete(self, chunks: list[Chunk]) -> str:
        if self._sse is None and not chunks:
            return f"HTTP {self._head.status} with an empty body"
        began = excerpt(self._body)
        return f"the stream ended without finish_reason and without [DONE]; it began {began}"
