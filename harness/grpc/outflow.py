"""What an HTTP/2 client has to send: frames, and a message that waits for the server's windows."""

from harness.grpc.frames import (
    DATA_BYTES,
    END_STREAM,
    FIRST_WINDOW_BYTES,
    MAX_WINDOW_BYTES,
    FrameType,
    FramingError,
    frame,
)

_OUT_BYTES = 256 * 1024  # as much of a message is framed at once


class Outflow:
    """Flow control of one connection that carries one call at a time (RFC 9113, 5.2).

    `out`: to be sent now. `unsent`: the part of the call's message that is not framed yet.
    """

    __slots__ = ("_connection_room", "_first_room", "_room", "_stream", "out", "unsent")

    def __init__(self, opening: bytes) -> None:
        self.out = bytearray(opening)
        self.unsent = memoryview(b"")
        self._stream = 0
        self._first_room = self._connection_room = self._room = FIRST_WINDOW_BYTES

    @property
    def is_empty(self) -> bool:
        """Nothing waits any more, neither for a window nor for the socket."""
        return not self.unsent and not self.out

    def begin(self, stream: int, head: bytes, message: memoryview) -> None:
        """A new call: its HEADERS, and its message, which `pump` frames."""
        self._stream = stream
        self._room = self._first_room
        self.out += head
        self.unsent = message

    def pump(self) -> bytearray:
        """Frame as much of the message as the windows allow; gives `out`."""
        while self.unsent and len(self.out) < _OUT_BYTES:
            size = min(len(self.unsent), self._room, self._connection_room, DATA_BYTES)
            if size <= 0:
                break
            piece, self.unsent = self.unsent[:size], self.unsent[size:]
            flags = 0 if self.unsent else END_STREAM
            self.out += frame(FrameType.DATA, flags, self._stream, bytes(piece))
            self._room -= size
            self._connection_room -= size
        return self.out

    def take_first_window(self, size: int) -> None:
        """The server's SETTINGS say how large a stream's window is at first; may shrink ours."""
        if size > MAX_WINDOW_BYTES:
            raise FramingError(f"a window of {size} bytes: at most {MAX_WINDOW_BYTES}")
        self._room += size - self._first_room
        self._first_room = size

    def take_update(self, stream: int, size: int) -> None:
        """The server takes more; stream 0: on the connection."""
        if stream == 0:
            self._connection_room += size
        elif stream == self._stream:
            self._room += size
