"""The loop: requests in, steps played, until it is stopped."""

import select
import socket
import time

from harness.calibrate.server.connection import SO_TIMESTAMPNS
from harness.calibrate.server.stamping import await_stamps
from harness.emulate.server.front import Front
from harness.emulate.server.player import Player
from harness.emulate.server.stream import ClientConnection

_IDLE_S = 0.1  # how soon a stop is seen when nothing happens
_SPIN_S = 20e-6  # nearer than this to a step's end the loop polls without sleeping
_READS_A_TURN = 64  # requests taken in before the next step begins; more wait for the one after


class Loop:
    """Serves on `listener` until `stop`."""

    def __init__(self, listener: socket.socket, front: Front, player: Player) -> None:
        self._listener = listener
        self._front = front
        self._player = player
        self._connections: dict[int, ClientConnection] = {}
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
        while not self._is_stopping:
            wait_s = min(self._player.advance() - time.monotonic(), _IDLE_S)
            if wait_s > _SPIN_S:  # select sleeps to the microsecond, epoll's own wait does not
                select.select([self._epoll], [], [], wait_s - _SPIN_S)
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
        self._connections[sock.fileno()] = ClientConnection(sock, self._epoll, self._player)

    def _on_ready(self, connection: ClientConnection, mask: int) -> None:
        if mask & select.EPOLLOUT:
            connection.flush()
        if mask & ~select.EPOLLOUT and connection.read() and not connection.is_busy:
            self._front.on_read(connection)
