"""Bodies that a server has compressed, which some do unasked."""

import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress

_ANY_WRAPPER = 32 + zlib.MAX_WBITS  # zlib or gzip, by the header
_STEP_BYTES = 1024  # what came before a damaged one is still good
_COMPRESSED = {"gzip", "x-gzip", "deflate"}


def is_packed(headers: Mapping[str, str]) -> bool:
    """Whether a body with these headers (names in lower case) is compressed."""
    return headers.get("content-encoding", "").strip().lower() in _COMPRESSED


def unpacker() -> Callable[[bytes], bytes]:
    """What unpacks one body piece by piece; raises zlib.error for what is none."""
    return zlib.decompressobj(_ANY_WRAPPER).decompress


def unpacked(body: bytes, limit_bytes: int | None = None) -> bytes:
    """A whole body; what is cut or damaged is given as far as it goes, and up to the limit."""
    unpack, out = unpacker(), bytearray()
    with suppress(zlib.error):
        for begin in range(0, len(body), _STEP_BYTES):
            out += unpack(body[begin : begin + _STEP_BYTES])
            if limit_bytes is not None and len(out) > limit_bytes:
                break
    return bytes(out[:limit_bytes])
