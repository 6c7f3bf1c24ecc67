"""The loop of a server with a schedule: one thread, one epoll; requests in, due events out."""

import select
import socket
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from harness.calibrate.server.connection import SO_TIMESTAMPNS, Connection
from harness.calibrate.server.stamping import await_stamps

_IDLE_S = 0.1  # how soon a stop is seen when nothing happens
_SPIN_S = 20e-6  # nearer than this to a due event the loop polls without sleeping
# A real-time process that never sleeps is stopped for 50 ms a second if others want its core
# (Linux's fair server). Giving them 5 % in small pieces keeps everything late by 0.2 ms at most.
_AWAKE_S, _PAUSE_S = 2e-3, 1e-4
_Connection = TypeVar("_Connection", bound=Connection)


class EpollLoop(Generic[_Connection]):
    """Serves on `listeners` until `stop`.

    Args:
        listeners: bound sockets, all served alike.
        connect: makes the connection of an accepted socket, registered with the epoll.
        on_read: bytes have come into a connection's buffer, and no answer is under way on it.
        send_due: sends what is due; returns when the next event is due, 0.0 if one may be already.
        reads_a_turn: how many requests are taken in before due events are sent again.
    """

    def __init__(
        self,
        *listeners: socket.socket,
        connect: Callable[[socket.socket, select.epoll], _Connection],
        on_read: Callable[[_Connection], None],
        send_due: Callable[[], float],
        reads_a_turn: int,
    ) -> None:
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._connect = connect
        self._on_read = on_read
        self._send_due = send_due
        self._reads_a_turn = reads_a_turn
        self._connections: dict[int, _Connection] = {}
        self._is_stopping = False
        self._epoll = select.epoll()
        for listener in listeners:
            # inherited by each connection: the kernel stamps from the start
            listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            listener.settimeout(0.0)
            self._epoll.register(listener.fileno(), select.EPOLLIN)
        await_stamps()

    def stop(self) -> None:
        """Let `run` return within a tenth of a second; safe in a signal handler."""
        self._is_stopping = True

    def run(self) -> None:
        """Serve until `stop`, then close every connection."""
        slept_s = time.monotonic()
        while not self._is_stopping:
            due_s, now_s = self._send_due(), time.monotonic()
            wait_s = min(due_s - now_s, _IDLE_S)
            if wait_s > _SPIN_S:  # select sleeps to the microsecond, epoll's own wait does not
                select.select([self._epoll], [], [], wait_s - _SPIN_S)
                slept_s = now_s
            elif now_s - slept_s > _AWAKE_S:
                time.sleep(_PAUSE_S)
                slept_s = now_s
            for fd, mask in self._epoll.poll(0.0, self._reads_a_turn):
                if fd in self._listeners:
                    self._accept(self._listeners[fd])
                else:
                    self._on_ready(self._connections[fd], mask)
        for connection in self._connections.values():
            connection.close()
        self._epoll.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:  # the client has gone again, or no descriptor is left: it may retry
            return
        # A closed connection leaves its entry; the kernel hands its number out again.
        self._connections[sock.fileno()] = self._connect(sock, self._epoll)

    def _on_ready(self, connection: _Connection, mask: int) -> None:
        if mask & select.EPOLLOUT:
            connection.flush()
        if mask & ~select.EPOLLOUT and connection.read() and not connection.is_busy:
            self._on_read(connection)
