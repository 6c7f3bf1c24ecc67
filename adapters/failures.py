"""What an error looks like on the wire: a status, or one of the many shapes of an error object."""

import re
from typing import Any

import msgspec

from harness.types import Chunk, ChunkKind, ErrorClass, ResponseHead

_MAX_MESSAGE_CHARS = 500
_RATE_LIMITED = 429
_PAGE = re.compile(rb"\s*<(?:!doctype\s+html|html)\b", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>([^<]*)", re.IGNORECASE)
_HEAD_BYTES = 4096  # a page's title is looked for so far


def error_chunk(error: ErrorClass, message: str) -> Chunk:
    """An ERROR chunk; its message is put on one line, and a long one is cut."""
    line = " ".join(message.split())
    return Chunk(kind=ChunkKind.ERROR, error=error, message=line[:_MAX_MESSAGE_CHARS])


def error_message(value: Any) -> str | None:
    """The text of an error object; None if the decoded JSON value is no error.

    Shapes: `{"error": {"message": ...}}`, `{"error": "text"}`, the flat `{"object": "error",
    "message": ...}`, and FastAPI's `{"detail": ...}`.
    """
    if not isinstance(value, dict):
        return None
    for key in ("error", "detail"):
        if value.get(key):
            return _text(value[key])
    if value.get("object") == "error" or ("message" in value and "choices" not in value):
        return _text(value.get("message") or value.get("type") or "error")
    return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return _text(value[0])
    if isinstance(value, dict):
        for key in ("message", "msg", "detail", "type", "code"):
            if value.get(key):
                return _text(value[key])
    return msgspec.json.encode(value).decode(errors="replace")


def json_value(data: bytes | bytearray) -> Any:
    """The decoded JSON, or None if it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def excerpt(data: bytes | bytearray, limit: int = 80) -> str:
    """The first bytes of something that was not understood, for a message; of a page its title."""
    return _page(data) or repr(bytes(data[:limit]))[1:]


def said(body: bytes | bytearray) -> str:
    """What an answer that is no success says, on one line: its error, a page's title, or all."""
    text = error_message(json_value(body)) or _page(body) or body.decode(errors="replace")
    return " ".join(text.split())


def _page(data: bytes | bytearray) -> str | None:
    """What a page of HTML is called; None for anything else: no engine answers with one."""
    if not _PAGE.match(data):
        return None
    title = _TITLE.search(data[:_HEAD_BYTES])
    name = " ".join(title[1].decode(errors="replace").split()) if title else ""
    return f"a page of HTML, as of a proxy: {name or 'without a title'}"


def status_error(head: ResponseHead, body: bytes | bytearray) -> Chunk:
    """The ERROR chunk of an answer whose status is not 2xx."""
    status = head.status
    message = said(body) or f"HTTP {status} without a message"
    if 300 <= status < 400:  # noqa: PLR2004  # the HTTP status classes
        return error_chunk(
            ErrorClass.REDIRECT, f"HTTP {status} to {head.headers.get('location', 'nowhere')}"
        )
    if status == _RATE_LIMITED:
        after = head.headers.get("retry-after")
        hint = f" (retry-after: {after})" if after else ""
        return error_chunk(ErrorClass.RATE_LIMITED, message + hint)
    if 400 <= status < 500:  # noqa: PLR2004
        return error_chunk(ErrorClass.HTTP_4XX, message)
    return error_chunk(ErrorClass.HTTP_5XX, message)
