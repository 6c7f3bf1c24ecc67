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
_EXCERPT_BYTES = 80
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
        self._has_events = False

    def _event(self, payload: bytes) -> list[Chunk]:
        """The chunks of one event."""
        raise NotImplementedError

    def _answer(self, body: bytes) -> list[Chunk]:
        """The chunks of a whole answer that came as one JSON body."""
        raise NotImplementedError

    def feed(self, data: bytes) -> list[Chunk]:
        """See `harness.adapter.Decoder`."""
        if self._is_over or (self._sse is None and not self._opens_stream(data)):
            return []
        assert self._sse is not None
        if not self._has_events:
            self._keep(data, _EXCERPT_BYTES)
        chunks: list[Chunk] = []
        for payload in self._sse.feed(data):
            chunks += self._take(payload, self._event)
            if self._is_over:
                return chunks
        if self._sse.overflowed:
            chunks += self._fail(ErrorClass.STREAM_ERROR, "an event above 8 MiB in the stream")
        return chunks

    def _opens_stream(self, data: bytes) -> bool:
        """Whether events begin here: the first byte that is no space decides; a body is kept."""
        if not self._is_body:
            start = data.lstrip()[:1]
            if not start:
                return False
            self._is_body = start in {b"{", b"[", b"<"}
            if not self._is_body:
                self._sse = SseParser()
                return True
        self._keep(data, _MAX_BODY_BYTES)
        return False

    def _keep(self, data: bytes, limit: int) -> None:
        self._body += data[: max(0, limit - len(self._body))]

    def _take(self, payload: bytes, decode: Callable[[bytes], list[Chunk]]) -> list[Chunk]:
        if payload.startswith(_DONE) and payload.strip() == _DONE:
            return self._done()
        self._has_events = True
        try:
            chunks = decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            said = error_message(json_value(payload))
            message = said or f"not understood in the stream: {excerpt(payload)}"
            return self._fail(ErrorClass.STREAM_ERROR, message)
        self._is_over = any(chunk.error is not None for chunk in chunks)
        return chunks

    def _done(self) -> list[Chunk]:
        if not self._has_events:
            return self._fail(ErrorClass.INCOMPLETE_STREAM, "[DONE] came before any event")
        self._is_complete = self._is_over = True
        return [_DONE_CHUNK]

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
        chunks = self._end_of_stream(self._sse) if self._sse else self._end_of_body()
        if not self._is_over and not self._is_complete:
            chunks += self._fail(ErrorClass.INCOMPLETE_STREAM, self._why_incomplete())
        self._is_over = True
        return chunks

    def _end_of_stream(self, sse: SseParser) -> list[Chunk]:
        chunks: list[Chunk] = []
        for payload in sse.end():
            if payload.strip() == _DONE or json_value(payload) is not None:
                chunks += self._take(payload, self._event)
        return chunks  # an event that is cut is an incomplete stream, not garbage in it

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

    def _why_incomplete(self) -> str:
        if self._has_events or self._is_body:
            return "the answer ended without finish_reason and without [DONE]"
        began = f"no event in {excerpt(self._body)}" if self._body else "an empty body"
        return f"HTTP {self._head.status} with {began}"
