"""The loop of the reference server: one thread, one epoll; requests in, scheduled events out."""

import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Protocol

from harness.calibrate.server.connection import SO_TIMESTAMPNS, Connection
from harness.calibrate.server.log import StreamLog
from harness.calibrate.server.openai import OpenAiFront
from harness.calibrate.server.schedule import Schedule
from harness.calibrate.server.stamping import await_stamps
from harness.calibrate.server.tls import TlsConnection

_IDLE_S = 0.1  # how soon a stop is seen when nothing happens
_SPIN_S = 20e-6  # nearer than this to a due event the loop polls without sleeping
# A real-time process that never sleeps is stopped for 50 ms a second if others want its core
# (Linux's fair server). Giving them 5 % in small pieces keeps everything late by 0.2 ms at most.
_AWAKE_S, _PAUSE_S = 2e-3, 1e-4
_READS_A_TURN = 4  # then due events are sent, even if many requests wait


class Front(Protocol):
    """A protocol that the server speaks: what to do with what a connection has read."""

    def on_read(self, connection: Connection) -> None:
        """Bytes have come into `connection.buffer`, and no answer is under way on it."""


class StreamServer:
    """Answers on `listener` until `stop`; every event of a stream goes into `log`.

    `tls`: encrypt every connection. `front`: makes the protocol that is spoken.
    """

    def __init__(
        self,
        listener: socket.socket,
        log: StreamLog,
        *,
        ttft_s: float,
        tokens_per_s: float,
        tls: ssl.SSLContext | None = None,
        front: Callable[[Schedule], Front] = OpenAiFront,
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._schedule = Schedule(log, ttft_s=ttft_s, tokens_per_s=tokens_per_s)
        self._front = front(self._schedule)
        self._connections: dict[int, Connection] = {}
        self._is_stopping = False
        # Set on the listener, inherited by each connection: the kernel stamps from the start.
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        await_stamps()
        listener.settimeout(0.0)
        self._epoll = select.epoll()
        self._epoll.register(listener.fileno(), select.EPOLLIN)

    def stop(self) -> None:
        """Let `run` return within a tenth of a second; safe in a signal handler."""
        self._is_stopping = True

    def run(self) -> None:
        """Serve until `stop`, then close every connection."""
        slept_s = time.monotonic()
        while not self._is_stopping:
            due_s, now_s = self._schedule.send_due(), time.monotonic()
            wait_s = min(due_s - now_s, _IDLE_S)
            if wait_s > _SPIN_S:  # select sleeps to the microsecond, epoll's own wait does not
                select.select([self._epoll], [], [], wait_s - _SPIN_S)
                slept_s = now_s
            elif now_s - slept_s > _AWAKE_S:
                time.sleep(_PAUSE_S)
                slept_s = now_s
            for fd, mask in self._epoll.poll(0.0, _READS_A_TURN):
                if fd == self._listener.fileno():
                    self._accept()
                else:
                    self._on_ready(self._connections[fd], mask)
        for connection in self._connections.values():
            connection.close()
        self._epoll.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # the client has gone again, or no descriptor is left: it may retry
            return
        # A closed connection leaves its entry; the kernel hands its number out again.
        self._connections[sock.fileno()] = (
            TlsConnection(sock, self._epoll, self._tls)
            if self._tls
            else Connection(sock, self._epoll)
        )

    def _on_ready(self, connection: Connection, mask: int) -> None:
        if mask & select.EPOLLOUT:
            connection.flush()
        if mask & ~select.EPOLLOUT and connection.read() and not connection.is_busy:
            self._front.on_read(connection)
