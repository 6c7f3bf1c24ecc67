"""Protocol Buffers' wire form, as much of it as one engine needs: fields in, fields out.

Three message types do not carry a run time with generated code. Source: the encoding chapter of
the Protocol Buffers documentation.
"""

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types


class BadMessageError(ValueError):
    """Bytes that are no such message, or a message that asks for what is not there."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a message's fields, as they come; BadMessageError if it is cut."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _read_varint(message, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = _read_varint(message, at)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(kind, len(message) + 1)
        if at + size > len(message):
            raise BadMessageError("a protobuf message that is cut or none")
        yield key >> 3, message[at : at + size]
        at += size


def field(number: int, value: int | bytes) -> bytes:
    """One field: a number as a varint, bytes with their length."""
    if isinstance(value, int):
        return _varint(number << 3 | VARINT) + _varint(value)
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def float_field(number: int, value: float) -> bytes:
    """One field of 32-bit floating point."""
    return _varint(number << 3 | FIXED32) + struct.pack("<f", value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:  # noqa: PLR2004 - bits of the largest number
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte <= 0x7F:  # noqa: PLR2004 - the last one
            return value, at
        shift += 7
    raise BadMessageError("a protobuf number that is cut or too long")
