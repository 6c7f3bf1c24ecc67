"""Server-sent events: bytes in, the payloads of complete events out. Sans-IO, bounded.

Source: WHATWG HTML, "Server-sent events", section "Interpreting an event stream". One departure:
an event that the end of the body leaves without its blank line is given, for servers that forget
it. Payloads stay bytes, so a UTF-8 character may be cut between reads.
"""

_BOM = b"\xef\xbb\xbf"
_DATA = b"data: "
MAX_EVENT_BYTES = 8 * 1024 * 1024


class SseParser:
    """The parser of one stream. `overflowed`: an event grew above `max_event_bytes`."""

    __slots__ = ("_data", "_is_first", "_max", "_parts", "_size", "_skip_lf", "overflowed")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._parts: list[bytes] = []  # the pieces of a line whose end has not come
        self._data: list[bytes] = []  # the data lines of an event whose blank line has not come
        self._size = 0
        self._is_first = True
        self._skip_lf = False
        self.overflowed = False

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads of the events that these bytes complete; nothing after an overflow."""
        if (
            data.startswith(_DATA)
            and data.endswith(b"\n\n")
            and not self._parts
            and not self._data
            and not self.overflowed
            and data.count(b"\n") == 2  # noqa: PLR2004  # the usual read is one whole event
            and b"\r" not in data
        ):
            self._is_first = self._skip_lf = False
            return [data[6:-2]] if len(data) > len(_DATA) + 2 else []
        if not data or self.overflowed:
            return []
        if self._skip_lf:
            self._skip_lf = False
            data = data[1:] if data.startswith(b"\n") else data
        return self._lines(data)

    def _lines(self, data: bytes) -> list[bytes]:
        if b"\n" not in data and b"\r" not in data:
            self._grow(data)
            return []
        # bytes.splitlines knows just the three line ends of the standard: LF, CR and CRLF
        lines = b"".join((*self._parts, data)).splitlines(keepends=False)
        self._parts.clear()
        self._size = sum(map(len, self._data))
        if data.endswith((b"\n", b"\r")):
            self._skip_lf = data.endswith(b"\r")
        else:
            self._grow(lines.pop())
        return [payload for line in lines if (payload := self._line(line))]

    def _line(self, line: bytes) -> bytes:
        """The payload that this line completes, else empty."""
        if self.overflowed:
            return b""
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._check(len(value))
        return b""

    def _dispatch(self) -> bytes:
        payload = b"\n".join(self._data)
        self._data.clear()
        self._size = sum(map(len, self._parts))
        return payload

    def _grow(self, piece: bytes) -> None:
        self._parts.append(piece)
        self._check(len(piece))

    def _check(self, more: int) -> None:
        self._size += more
        if self._size > self._max:
            self.overflowed = True
            self._parts.clear()
            self._data.clear()

    def end(self) -> list[bytes]:
        """The payload of an event that the end of the body leaves without its blank line."""
        if self.overflowed:
            return []
        rest = b"".join(self._parts)
        self._parts.clear()
        payload = self._line(rest) if rest else b""
        payload = payload or self._dispatch()
        return [payload] if payload else []
