"""A gRPC call as bytes: what is written before the load, and the messages inside DATA frames.

The header block uses no dynamic table (RFC 7541), so it is the same on every connection.
"""

import struct

import hpack

from harness.errors import ConfigError
from harness.grpc.frames import DATA_BYTES, END_HEADERS, HEAD_BYTES, FrameType, frame
from harness.types import HttpCall

CONTENT_TYPE = "application/grpc"
_PREFIX = struct.Struct(">BI")  # compressed or not, length (gRPC over HTTP/2, Length-Prefixed)
_NO_TABLE = b"\x20"  # dynamic table size 0 (RFC 7541, 6.3): whatever a server's settings allow


def pack_message(message: bytes) -> bytes:
    """One protobuf message with gRPC's frame of five bytes before it."""
    return _PREFIX.pack(0, len(message)) + message


def grpc_bytes(call: HttpCall, *, authority: str, request_id: str) -> bytes:
    """One gRPC call as it is kept until it is sent: a HEADERS frame, then the framed message.

    The frame's stream is left 0: the connection that sends it fills in its own, and cuts the
    message into DATA frames. Header names are sent in lower case (RFC 9113, 8.2).

    Raises:
        ConfigError: The headers do not fit into one frame.
    """
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": call.path,
        ":authority": authority,
        "te": "trailers",
        "content-type": CONTENT_TYPE,
        "user-agent": "bakeoff",
        "x-request-id": request_id,
        **{name.lower(): value for name, value in call.headers.items()},
    }
    block = _NO_TABLE + header_block(headers)
    if len(block) > DATA_BYTES:
        raise ConfigError(f"headers of {len(block)} bytes: a gRPC call may have {DATA_BYTES}")
    return frame(FrameType.HEADERS, END_HEADERS, 0, block) + pack_message(call.body)


def header_block(headers: dict[str, str]) -> bytes:
    """A header block that neither needs nor changes a dynamic table."""
    fields = [hpack.NeverIndexedHeaderTuple(name, value) for name, value in headers.items()]
    return hpack.Encoder().encode(fields, huffman=False)


def header_frame(data: bytes, stream: int) -> tuple[bytes, int]:
    """HEADERS of a written call with its stream filled in, and where the message begins."""
    begin = HEAD_BYTES + (data[0] << 16 | data[1] << 8 | data[2])
    return data[: HEAD_BYTES - 4] + stream.to_bytes(4, "big") + data[HEAD_BYTES:begin], begin


class MessageError(Exception):
    """A message that cannot be read; one sentence."""


class MessageCutter:
    """Cuts messages out of the content of DATA frames, wherever that is cut."""

    __slots__ = ("_needed_bytes", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._needed_bytes = _PREFIX.size

    @property
    def is_inside(self) -> bool:
        """A message has begun and has not ended."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Messages that these bytes complete, in order; MessageError for a compressed one."""
        rest, messages, begin = self._rest, [], 0
        rest += data
        while len(rest) - begin >= self._needed_bytes:
            compressed, size = _PREFIX.unpack_from(rest, begin)
            if compressed:
                raise MessageError("a compressed message, and none was asked for")
            self._needed_bytes = _PREFIX.size + size
            if len(rest) - begin < self._needed_bytes:
                break
            messages.append(bytes(rest[begin + _PREFIX.size : begin + self._needed_bytes]))
            begin += self._needed_bytes
            self._needed_bytes = _PREFIX.size
        del rest[:begin]
        return messages
