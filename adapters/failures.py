"""What an error looks like on the wire: a status, or one of the many shapes of an error object."""

from typing import Any

import msgspec

from harness.types import Chunk, ChunkKind, ErrorClass, ResponseHead

_MAX_MESSAGE_CHARS = 500
_RATE_LIMITED = 429


def error_chunk(error: ErrorClass, message: str) -> Chunk:
    """An ERROR chunk; a long message is cut."""
    return Chunk(kind=ChunkKind.ERROR, error=error, message=message[:_MAX_MESSAGE_CHARS])


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
    """The first bytes of something that was not understood, for a message."""
    return repr(bytes(data[:limit]))[1:]


def status_error(head: ResponseHead, body: bytes | bytearray) -> Chunk:
    """The ERROR chunk of an answer whose status is not 2xx."""
    said = error_message(json_value(body)) or body[:_MAX_MESSAGE_CHARS].decode(errors="replace")
    message = said.strip() or f"HTTP {head.status} without a message"
    status = head.status
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
