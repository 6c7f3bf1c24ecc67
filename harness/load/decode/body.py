"""The HTTP framing of one answer, taken off again after the load: head and body pieces. Sans-IO."""

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import httptools

from harness.adapter import Adapter
from harness.answer import Answer
from harness.packed import is_packed, unpacker
from harness.types import ErrorClass, ResponseHead

_OK_STATUS = 200


class Body(Protocol):
    """One answer as it is read, whatever its wire; see `HttpBody`."""

    @property
    def head(self) -> ResponseHead | None:
        """Status and headers; None before they came."""
        ...

    @property
    def head_s(self) -> float | None:
        """When they came."""
        ...

    @property
    def answer(self) -> Answer | None:
        """The fold of what the body says; None before the head came."""
        ...

    @property
    def is_cut(self) -> bool:
        """Whether the framing promised more than came."""
        ...

    def feed(self, t_s: float, data: bytes) -> None:
        """Take one read of the socket, with its stamp."""
        ...


class HttpBody:
    """One answer as it is read: `feed` takes what came off the socket, with its stamp.

    `head`, `head_s`: None before the head came. `answer`: the fold of what the body says.
    """

    def __init__(self, adapter: Adapter, count_tokens: Callable[[str], int] | None) -> None:
        self._adapter = adapter
        self._count_tokens = count_tokens
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._unpack: Callable[[bytes], bytes] | None = None
        self._t_s = 0.0
        self._is_whole = False
        self.head_s: float | None = None
        self.head: ResponseHead | None = None
        self.answer: Answer | None = None
        self._parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools."""
        if not self._is_whole:  # behind a whole answer nothing was asked for
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by httptools; an interim answer (1xx) is left out, the real head follows."""
        if self._is_whole:
            return
        status = self._parser.get_status_code()
        if status < _OK_STATUS:
            self._headers = {}
            return
        self.head = ResponseHead(status=status, headers=self._headers)
        self.head_s = self._t_s
        self.answer = Answer(self._adapter.decoder(self.head), count_tokens=self._count_tokens)
        if is_packed(self._headers):
            self._unpack = unpacker()

    def on_body(self, data: bytes) -> None:
        """Called by httptools."""
        if not self._is_whole:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        """Called by httptools."""
        self._is_whole = self.head is not None

    @property
    def is_cut(self) -> bool:
        """Whether the framing promised more than came; only a body without it may just end."""
        framed = {"content-length", "transfer-encoding"} & set(self._headers)
        return bool(framed) and not self._is_whole

    def feed(self, t_s: float, data: bytes) -> None:
        """Take one read of the socket; the body bytes in it are one read of the answer."""
        self._t_s = t_s
        # the client noted what is not HTTP; the END entry carries the reason
        with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._parser.feed_data(data)
        if self._pieces and self.answer is not None:
            self._take(self.answer, b"".join(self._pieces))
        self._pieces.clear()

    def _take(self, answer: Answer, body: bytes) -> None:
        if self._unpack is not None:
            try:
                body = self._unpack(body)
            except zlib.error as error:
                message = f"content-encoding that cannot be read: {error}"
                answer.fail(self._t_s, ErrorClass.STREAM_ERROR, message)
                return
        answer.feed(self._t_s, body)
