"""One answer on its way to a client, and the connection that it goes over."""

import select
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from harness.calibrate.server.connection import Connection
from harness.calibrate.server.grpc_session import GrpcSession
from harness.emulate.model.sequence import Sequence
from harness.emulate.wires.wire import Ask


class Sink(Protocol):
    """Where answers go, one at a time: a connection, or one of several streams on it.

    `stamp_s`: when the request arrived. `stream`: the answer under way, None when its client has
    gone. `is_busy`: an answer is under way.
    """

    stamp_s: float
    is_busy: bool
    stream: "Stream | None"

    def put(self, data: bytes) -> bool:
        """Send now or later, in order; False if the client is gone."""
        ...

    def close(self) -> None:
        """Break off, and give up the answer under way."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Stream:
    """An answer under way. `cut_at`: the token in whose place it breaks off, if at all.

    `failure`: what is said there instead, which ends the answer but not the connection.
    `on_complete`: called when its last bytes have been put.
    """

    sink: Sink
    ask: Ask
    on_complete: Callable[[], None]
    cut_at: int | None = None
    failure: bytes | None = None
    sequence: Sequence = field(init=False)


class Leaver(Protocol):
    """Who wants to know that a client has gone before its answer was complete."""

    def abandon(self, stream: Stream) -> None:
        """Nobody waits for this answer any more."""


class ClientConnection(Connection):
    """A connection that tells when it closes under an answer, however it came to close.

    `session`: of a client that speaks gRPC.
    """

    __slots__ = ("_leaver", "requests", "session", "stream")

    def __init__(self, sock: socket.socket, epoll: select.epoll, leaver: Leaver) -> None:
        super().__init__(sock, epoll)
        self._leaver = leaver
        self.requests = 0  # that have come over it
        self.stream: Stream | None = None
        self.session: GrpcSession | None = None

    def close(self) -> None:
        """Close, and give up the answer under way."""
        super().close()
        self.session = None  # no cycle is left: nothing collects them
        stream, self.stream = self.stream, None
        if stream is not None:
            self._leaver.abandon(stream)
