"""Recorded HTTP answers (`curl -i --raw`) to a head and a body without framing."""

import re

import httptools

from harness.types import ResponseHead


class _Collector:
    """Takes httptools' callbacks."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """A piece of the body, de-chunked."""
        self.body.append(body)


def read_http(raw: bytes) -> tuple[ResponseHead, list[bytes]]:
    """Head and body pieces of one recorded answer, the pieces as they were chunked.

    A recording whose body was de-chunked by hand gives its body in one piece.
    """
    collector = _Collector()
    parser = httptools.HttpResponseParser(collector)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserError:
        collector.body = re.split(rb"\r?\n\r?\n", raw, maxsplit=1)[1:]
    head = ResponseHead(status=parser.get_status_code(), headers=collector.headers)
    return head, collector.body
