"""The HTTP client of the hot path: sends calls over kept-alive connections, each to its end."""

from dataclasses import dataclass
from socket import AF_INET6, SOCK_STREAM, AddressFamily
from time import monotonic
from typing import Any, NamedTuple

import gevent.socket
from gevent.hub import get_hub

from harness.load.connection import Connection, Exchange
from harness.load.journal import JournalWriter, Kind

_FIRST_ERROR_STATUS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to connect: an address resolved once, before the load."""

    family: AddressFamily
    address: tuple[Any, ...]


class Ended(NamedTuple):
    """How one request ended: when on the monotonic clock, why, and the HTTP status (0: none)."""

    end_s: float
    reason: str
    status: int

    @property
    def is_good(self) -> bool:
        """An answer came whole and is no HTTP error; what it says is not known here."""
        return self.reason == "complete" and self.status < _FIRST_ERROR_STATUS


class Client:
    """Sends calls over kept-alive connections, with no limit of its own on their number."""

    def __init__(self, target: Target, journal: JournalWriter, *, timeout_s: float) -> None:
        self._target = target
        self._journal = journal
        self._timeout_s = timeout_s
        self._idle: list[Connection] = []
        self._busy: dict[int, Connection] = {}

    def send(self, index: int, data: bytes) -> Ended:
        """Play one request to its end; returns when and why it ended.

        `reason` is `complete`, or why not; it is journalled. A kept-alive connection that had
        died before any byte of the answer is replaced once (servers close idle ones).
        """
        reused = self._idle.pop() if self._idle else None
        exchange = self._attempt(index, data, reused)
        if reused is not None and exchange.is_dead:
            self._journal.append(Kind.RETRY, index, monotonic())
            exchange = self._attempt(index, data, None)
        self._journal.append(Kind.END, index, exchange.end_s, 0.0, exchange.reason.encode())
        return Ended(exchange.end_s, exchange.reason, exchange.status)

    def cancel_all(self, reason: str) -> None:
        """Cut off every running request; their greenlets wake in the hub's next round."""
        for connection in list(self._busy.values()):
            get_hub().loop.run_callback(connection.finish, reason, monotonic())

    def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _attempt(self, index: int, data: bytes, reused: Connection | None) -> Exchange:
        exchange = Exchange(index)
        try:
            connection = reused or Connection(self._target.family, self._journal)
        except OSError as error:  # no file descriptor is left
            exchange.reason, exchange.end_s = f"connect: {error.strerror or error}", monotonic()
            return exchange
        connection.begin(exchange)
        self._busy[index] = connection
        timer = get_hub().loop.timer(self._timeout_s)
        timer.start(connection.finish, "timeout", monotonic() + self._timeout_s)
        try:
            if reused is None:
                connection.connect(self._target.address, exchange)
            if not exchange.reason:
                connection.send_all(data, exchange)
            if not exchange.reason:
                exchange.waiter.get()
        finally:
            timer.stop()
            timer.close()
            del self._busy[index]
        if connection.is_alive:
            self._idle.append(connection)
        else:
            connection.close()
        return exchange


def resolve(host: str, port: int) -> Target:
    """Resolve once, so that no request waits for a name server; OSError if it cannot be."""
    infos = gevent.socket.getaddrinfo(host, port, type=SOCK_STREAM)
    family, _, _, _, address = next((i for i in infos if i[0] != AF_INET6), infos[0])
    return Target(family=AddressFamily(family), address=tuple(address))
