"""An answer that somebody waits for, without framing and compression. Sans-IO."""

from contextlib import suppress

import httptools

from harness.packed import is_packed, unpacked
from harness.types import ResponseHead

_OK_STATUS = 200


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
        if is_packed(collector.headers):
            body = unpacked(body)
    del collector.parser  # a cycle: nobody collects it during a load
    return head, (body,)
