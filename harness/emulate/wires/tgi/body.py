"""The body of a request as TGI's web framework reads it, and what it says of a bad one.

Words and statuses: axum 0.7, `Json`.
"""

from typing import Any

import msgspec

from harness.calibrate.server.wire import HttpRequest

_UNPARSED = "Failed to parse the request body as JSON"
UNFIT = "Failed to deserialize the JSON body into the target type"


class NotReadError(Exception):
    """A body that the web framework does not take; answered in plain text."""

    def __init__(self, message: str, *, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


def read_body(request: HttpRequest) -> dict[str, Any]:
    """The JSON object of a body; NotReadError if it is none."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        message = "Expected request with `Content-Type: application/json`"
        raise NotReadError(message, status=415)
    try:
        data = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotReadError(f"{_UNPARSED}: {error}", status=400) from error
    if not isinstance(data, dict):
        raise NotReadError(f"{UNFIT}: invalid type, expected a map")
    return data


def typed(data: dict[str, Any], key: str, kind: Any, *, default: Any) -> Any:
    """A field of this type; `default` if it is not there or null."""
    value = data.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise NotReadError(f"{UNFIT}: {key}: invalid type")
    return value


def number(data: dict[str, Any], key: str) -> float | None:
    """A field that is a number."""
    value = typed(data, key, (int, float), default=None)
    return None if value is None else float(value)
