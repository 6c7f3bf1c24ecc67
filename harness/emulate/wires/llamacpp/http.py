"""Whole answers of llama.cpp's server: their headers, and its form of an error."""

from collections.abc import Mapping

import msgspec

from harness.emulate.wires.http import response

JSON_TYPE = "application/json; charset=utf-8"
KINDS = {
    400: "invalid_request_error",
    404: "not_found_error",
    429: "unavailable_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


def http_headers(*, closes: bool) -> dict[str, str]:
    """What every answer of the server has besides its type."""
    end = {"Connection": "close"} if closes else {"Keep-Alive": "timeout=5, max=100"}
    return {"Server": "llama.cpp", "Access-Control-Allow-Origin": "", **end}


def told_json(data: object, *, closes: bool) -> bytes:
    """A good answer."""
    return response(200, msgspec.json.encode(data), JSON_TYPE, http_headers(closes=closes))


def told_error(
    status: int,
    message: str,
    *,
    kind: str | None = None,
    sizes: Mapping[str, int] | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """An error; the server closes the connection behind every one. `sizes`: more that it says."""
    error = {"code": status, "message": message, "type": kind or KINDS[status], **(sizes or {})}
    body = msgspec.json.encode({"error": error})
    return response(status, body, JSON_TYPE, {**http_headers(closes=True), **(headers or {})})
