"""Whole HTTP answers of an emulated engine."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec


def response(
    status: int,
    body: bytes,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A whole answer with its length; an empty one has no type."""
    kind = f"content-type: {content_type}\r\n" if body else ""
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        f"{kind}{more}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1") + body


def json_response(status: int, data: object, headers: Mapping[str, str] | None = None) -> bytes:
    """A whole JSON answer."""
    return response(status, msgspec.json.encode(data), headers=headers)
