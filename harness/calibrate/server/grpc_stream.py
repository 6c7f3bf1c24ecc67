"""The streams of one gRPC connection at the reference server: what waits for the client's windows.

To the schedule each stream is a connection of its own.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.calibrate.server.connection import Connection
from harness.grpc.call import MessageCutter
from harness.grpc.frames import FIRST_WINDOW_BYTES, HEAD_BYTES, FrameType


@dataclass(slots=True, kw_only=True, eq=False)
class Outlet:
    """What the streams of a connection share. `room`: bytes of DATA that the client still takes."""

    connection: Connection
    room: int = FIRST_WINDOW_BYTES


@dataclass(slots=True, kw_only=True, eq=False)
class GrpcStream:
    """One call and its answer.

    `number`: of the stream. `room`: as in `Outlet`, for this stream alone. `path`, `index`: of the
    call (the index is the client's, None if it gave none). `message`: the call's last message.
    `blocked`: frames that had to wait for a window. `forget`: called when nothing is left to send.
    """

    outlet: Outlet
    number: int
    room: int
    forget: Callable[[int], object]
    path: str = ""
    index: int | None = None
    messages: MessageCutter = field(default_factory=MessageCutter)
    message: bytes = b""
    stamp_s: float = 0.0
    is_kernel: bool = False
    is_busy: bool = False
    blocked: int = 0
    is_gone: bool = False
    _held: deque[bytes] = field(default_factory=deque)
    _is_over: bool = False

    def put(self, data: bytes) -> bool:
        """Send these frames now, or when the windows allow it; False if the client is gone."""
        if self.is_gone:
            return False
        if self._held or not self._has_room(data):
            self.blocked += 1
            self._held.append(data)
            return True
        return self.outlet.connection.put(data)

    def release(self) -> None:
        """Send what waits, as far as the windows allow it now."""
        while self._held and self._has_room(self._held[0]):
            self.outlet.connection.put(self._held.popleft())
        if self._is_over and not self._held:
            self.forget(self.number)

    def end(self) -> None:
        """The last frames have been put."""
        self._is_over = True
        self.release()

    def _has_room(self, data: bytes) -> bool:
        """Take what these frames need out of both windows, if there is enough."""
        size = len(data) - HEAD_BYTES
        if data[3] != FrameType.DATA or data[0] << 16 | data[1] << 8 | data[2] != size:
            size = _data_bytes(data)  # more than one frame: the first token's, or the end
        if size > min(self.room, self.outlet.room):
            return False
        self.room -= size
        self.outlet.room -= size
        return True


def _data_bytes(data: bytes) -> int:
    """Bytes of DATA in whole frames, which is what the windows count (RFC 9113, 6.9)."""
    at = total = 0
    while at < len(data):
        size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
        if data[at + 3] == FrameType.DATA:
            total += size
        at += HEAD_BYTES + size
    return total
