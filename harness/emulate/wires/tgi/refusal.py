"""How emulated TGI begins a stream, and how it refuses.

Source: text-generation-inference 3.3.7, router/src/server.rs: an error inside a stream has the
status 200, and on the OpenAI routes always says 422.
"""

import msgspec

from harness.calibrate.server.wire import frame
from harness.emulate.wires.http import json_response, response
from harness.emulate.wires.tgi.order import Order

COMPUTE_TYPE = "emulated"
DONE = frame(b"data: [DONE]\n\n")
LAST = b"0\r\n\r\n"


def event(value: object) -> bytes:
    """One event, as one HTTP chunk."""
    return frame(b"data: " + msgspec.json.encode(value) + b"\n\n")


def stream_head(order: Order) -> bytes:
    """What a stream begins with, before anything is known of how it will go."""
    return (
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
        f"x-compute-type: {COMPUTE_TYPE}\r\nx-compute-characters: {len(order.prompt)}\r\n"
        "x-accel-buffering: no\r\ntransfer-encoding: chunked\r\n\r\n"
    ).encode()


def refusal(order: Order, status: int, message: str, kind: str) -> bytes:
    """An error: with its status, or as an event of a stream that has begun with 200."""
    if not order.is_stream:
        return error_response(status, message, kind)
    if not order.form.is_openai:
        return stream_head(order) + event({"error": message, "error_type": kind}) + LAST
    said = {"message": message, "http_status_code": 422}  # whatever it is
    return stream_head(order) + event({"error": said}) + DONE + LAST


def error_response(status: int, message: str, kind: str) -> bytes:
    """An error with its status."""
    return json_response(status, {"error": message, "error_type": kind})


def plain_response(status: int, text: str) -> bytes:
    """What the web framework says of a body that it does not take."""
    return response(status, text.encode(), "text/plain; charset=utf-8")
