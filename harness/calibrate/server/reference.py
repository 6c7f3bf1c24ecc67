"""The reference server: answers on a known schedule, and logs every send."""

import select
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from harness.calibrate.server.connection import Connection
from harness.calibrate.server.epoll_loop import EpollLoop
from harness.calibrate.server.log import StreamLog
from harness.calibrate.server.openai import OpenAiFront
from harness.calibrate.server.schedule import Schedule
from harness.calibrate.server.tls import TlsConnection

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
        schedule = Schedule(log, ttft_s=ttft_s, tokens_per_s=tokens_per_s)

        def connect(sock: socket.socket, epoll: select.epoll) -> Connection:
            return TlsConnection(sock, epoll, tls) if tls else Connection(sock, epoll)

        self._loop = EpollLoop(
            listener,
            connect=connect,
            on_read=front(schedule).on_read,
            send_due=schedule.send_due,
            reads_a_turn=_READS_A_TURN,
        )

    def stop(self) -> None:
        """Let `run` return within a tenth of a second; safe in a signal handler."""
        self._loop.stop()

    def run(self) -> None:
        """Serve until `stop`, then close every connection."""
        self._loop.run()
