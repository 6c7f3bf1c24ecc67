"""An answer that somebody waits for, without framing and compression. Sans-IO."""

import zlib
from contextlib import suppress

import httptools

from harness.types import ResponseHead

_OK_STATUS = 200
_ANY_WRAPPER = 32 + zlib.MAX_WBITS  # zlib or gzip, by the header
_STEP_BYTES = 1024  # what came before a damaged one is still good
_COMPRESSED = {"gzip", "x-gzip", "deflate"}


class _Collector:
    """Takes httptools' callbacks; what interim answers said is forgotten."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.status = 0
        self.is_whole = False
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; those of a trailer too."""
        if not self.is_whole:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The end of a head."""
        if self.is_whole:
            return
        self.status = self.parser.get_status_code()
        if self.status < _OK_STATUS:
            self.headers, self.status = {}, 0

    def on_body(self, data: bytes) -> None:
        """A piece of the body; what follows the answer is none."""
        if not self.is_whole:
            self.body.append(data)

    def on_message_complete(self) -> None:
        """The end of an answer, an interim one too."""
        self.is_whole = self.status > 0


def read_answer(data: bytes) -> tuple[ResponseHead | None, tuple[bytes]]:
    """Head and body of one answer; no head if none came, the body as far as it can be read."""
    collector = _Collector()
    # bytes behind the answer, or in its middle, are the client's affair; it knows how it ended
    with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        collector.parser.feed_data(data)
    head, body = None, b"".join(collector.body)
    if collector.status:
        head = ResponseHead(status=collector.status, headers=collector.headers)
        if collector.headers.get("content-encoding", "").strip().lower() in _COMPRESSED:
            body = _unpacked(body)
    del collector.parser  # a cycle: nobody collects it during a load
    return head, (body,)


def _unpacked(body: bytes) -> bytes:
    """The uncompressed body; what is cut or damaged is given as far as it goes."""
    unpack = zlib.decompressobj(_ANY_WRAPPER).decompress
    out = bytearray()
    with suppress(zlib.error):
        for begin in range(0, len(body), _STEP_BYTES):
            out += unpack(body[begin : begin + _STEP_BYTES])
    return bytes(out)
