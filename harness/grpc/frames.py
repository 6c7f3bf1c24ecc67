"""HTTP/2 frames (RFC 9113): cut by their length, and made. No header block is looked at.

Client, decoder and reference server share it; it knows neither a socket nor a clock.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # 3.4: what a client sends first
HEAD_BYTES = 9  # 4.1
DATA_BYTES = 16384  # 4.2: a payload that every peer must take
MAX_FRAME_BYTES = 1 << 20  # what we say that we take; a length above it is no frame
MAX_WINDOW_BYTES = (1 << 31) - 1  # 6.9.1
FIRST_WINDOW_BYTES = 65535  # 6.9.2
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY_FIELDS = 0x1, 0x1, 0x4, 0x8, 0x20
_HEAD = struct.Struct(">HBBBI")  # length in two parts, type, flags, stream
_STREAM_BITS = 0x7FFF_FFFF
_PRIORITY_BYTES = 5


class FrameType(IntEnum):
    """Types of frames (section 6)."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Setting(IntEnum):
    """Names of settings (6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5


class ErrorCode(IntEnum):
    """Why a stream or a connection was ended (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Frame(NamedTuple):
    """One whole frame; `kind` may be a number that no type has (4.1: such are ignored)."""

    kind: int
    flags: int
    stream: int
    payload: bytes


class FramingError(Exception):
    """Bytes that are no HTTP/2 as the RFC has it; one sentence."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """The bytes of one frame."""
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    """A SETTINGS frame; names as in `Setting`."""
    pairs = (struct.pack(">HI", Setting[name], value) for name, value in values.items())
    return frame(FrameType.SETTINGS, 0, 0, b"".join(pairs))


def setting_pairs(payload: bytes) -> list[tuple[int, int]]:
    """What a SETTINGS frame sets; FramingError if it is cut (6.5)."""
    if len(payload) % 6:
        raise FramingError(f"SETTINGS of {len(payload)} bytes: must be a multiple of 6")
    return list(struct.iter_unpack(">HI", payload))


def window_update(stream: int, size: int) -> bytes:
    """A WINDOW_UPDATE frame: `size` more bytes may come; stream 0: on the connection."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def number(payload: bytes, offset: int = 0) -> int:
    """The 31-bit number in a control frame; FramingError if the payload is too short for one."""
    if len(payload) < offset + 4:
        raise FramingError(f"a control frame of {len(payload)} bytes: must hold {offset + 4}")
    return int.from_bytes(payload[offset : offset + 4], "big") & _STREAM_BITS


def content(item: Frame) -> bytes:
    """Payload of a DATA, HEADERS or CONTINUATION frame without padding and priority (6.1, 6.2)."""
    payload = item.payload
    if item.kind == FrameType.CONTINUATION or not item.flags & (PADDED | PRIORITY_FIELDS):
        return payload
    begin = padding = 0
    if item.flags & PADDED:
        begin, padding = 1, payload[0] if payload else MAX_FRAME_BYTES
    if item.kind == FrameType.HEADERS and item.flags & PRIORITY_FIELDS:
        begin += _PRIORITY_BYTES
    if begin + padding > len(payload):
        raise FramingError("a frame with more padding than payload")
    return payload[begin : len(payload) - padding]


class FrameCutter:
    """Cuts frames out of what is read; where the reads are cut makes no difference.

    `error`: why what follows is no frame, or empty; then nothing more is cut. Linear in the bytes,
    however small the reads.
    """

    __slots__ = ("_needed_bytes", "_rest", "error")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._needed_bytes = 0
        self.error = ""

    @property
    def is_inside(self) -> bool:
        """A frame has begun and has not ended."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[Frame]:
        """Frames that these bytes complete, in order."""
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._needed_bytes:
                return []
            data = bytes(rest)
            rest.clear()
        frames: list[Frame] = []
        begin, size = 0, len(data)
        unpack, add = _HEAD.unpack_from, frames.append
        while not self.error:
            payload = begin + HEAD_BYTES
            if payload > size:
                self._needed_bytes = HEAD_BYTES
                break
            high, low, kind, flags, stream = unpack(data, begin)
            end = payload + (high << 8 | low)
            if end - payload > MAX_FRAME_BYTES:
                self.error = f"a frame of {end - payload} bytes: at most {MAX_FRAME_BYTES}"
                break
            if end > size:
                self._needed_bytes = end - begin
                break
            add(Frame(kind, flags, stream & _STREAM_BITS, data[payload:end]))
            begin = end
        if begin < size and not self.error:
            rest += data[begin:]
        return frames
