"""One client's connection at the reference server: reads with the kernel's stamp, writes that wait.

Level-triggered epoll, non-blocking socket. A connection that is gone takes no more bytes and says
so; nothing is raised.
"""

import select
import socket
import struct
import time
from collections.abc import Callable

SO_TIMESTAMPNS = 35  # Linux, asm-generic/socket.h; the socket module has no name for it
_RECV_BYTES = 65536
_TORN_S = 20e-6  # two neighbouring clock readings further apart than this were interrupted


def arrival_s(ancillary: list[tuple[int, int, bytes]]) -> tuple[float, bool]:
    """When the bytes just read reached the kernel, monotonic, and whether the kernel said so.

    mono_now - (real_now - stamp): the stamp is wall time, so only its age is used. Both clocks
    are read again if something came between the two readings.
    """
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            for _ in range(5):
                before_s = time.monotonic()
                age_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - seconds * 10**9 - nanoseconds
                now_s = time.monotonic()
                if now_s - before_s < _TORN_S:
                    break
            return now_s - age_ns * 1e-9, True
    return time.monotonic(), False


def _send_to_nobody(_data: bytes) -> int:
    raise BrokenPipeError


class Connection:
    """Bytes that came (`buffer`, stamped) and bytes that wait to go.

    `is_busy`: an answer is under way. `blocked`: sends that the socket did not take at once.
    `is_closing`: to be closed when all is sent.
    """

    __slots__ = (
        "_backlog",
        "_epoll",
        "_send",
        "_sock",
        "blocked",
        "buffer",
        "is_busy",
        "is_closing",
        "is_kernel",
        "stamp_s",
    )

    def __init__(self, sock: socket.socket, epoll: select.epoll) -> None:
        sock.settimeout(0.0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        epoll.register(sock.fileno(), select.EPOLLIN)
        self._sock = sock
        self._epoll = epoll
        self._send: Callable[[bytes], int] = sock.send
        self._backlog = bytearray()
        self.buffer = bytearray()
        self.stamp_s = 0.0
        self.is_kernel = False
        self.is_busy = False
        self.is_closing = False
        self.blocked = 0

    def put(self, data: bytes) -> bool:
        """Send now, or queue behind what waits already; False if the client is gone."""
        try:
            taken = self._send(data)
        except BlockingIOError:
            taken = 0
        except OSError:
            self.close()
            return False
        if taken != len(data):
            self._hold(data[taken:])
        return True

    def read(self) -> bool:
        """Take in and stamp what came; False if nothing did, or the client is gone."""
        try:
            data, ancillary, _, _ = self._sock.recvmsg(_RECV_BYTES, 64)
        except BlockingIOError:
            return False
        except OSError:
            data, ancillary = b"", []
        if not data:
            self.close()
            return False
        stamp = arrival_s(ancillary)
        if not (plain := self._plain(data)):
            return False
        self.buffer += plain
        self.stamp_s, self.is_kernel = stamp
        return True

    def _plain(self, data: bytes) -> bytes:
        """What the bytes that came say; a connection with a cipher says it its own way."""
        return data

    def flush(self) -> None:
        """The socket can be written: send what waits, then let `put` send directly again."""
        try:
            del self._backlog[: self._sock.send(self._backlog)]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not self._backlog:
            self._send = self._sock.send
            self._epoll.modify(self._sock.fileno(), select.EPOLLIN)
            self.close_if_done()

    def close_if_done(self) -> None:
        """Close if that was asked for, no answer is under way and nothing waits."""
        if self.is_closing and not self.is_busy and not self._backlog:
            self.close()

    def close(self) -> None:
        """Close; bytes put from now on are refused. Closing twice is fine."""
        if self._sock.fileno() >= 0:
            self._epoll.unregister(self._sock.fileno())
            self._sock.close()
        self._send = _send_to_nobody

    def _hold(self, rest: bytes) -> None:
        self.blocked += 1
        self._backlog += rest
        self._send = self._queue
        self._epoll.modify(self._sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _queue(self, data: bytes) -> int:
        self.blocked += 1
        self._backlog += data
        return len(data)
