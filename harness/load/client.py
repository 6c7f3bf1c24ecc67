"""The HTTP client of the hot path: raw sockets in the event loop's own callbacks.

A greenlet that waits for every read costs twice as much as reading in the hub's io callback
(design.md 5), so the callback reads, stamps, journals and feeds the HTTP framing, and wakes the
waiting greenlet once, when the answer is complete. Nothing of the answer's meaning is looked at.
This module must not parse bodies, and must do no work at the end of an answer: streams end
together, and what is done there stalls all others.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from socket import AF_INET6, IPPROTO_TCP, SOCK_STREAM, TCP_NODELAY, AddressFamily
from time import monotonic
from typing import Any

import gevent.monkey
import gevent.socket
import httptools
from gevent.hub import Waiter, get_hub

from harness.load import stamps
from harness.load.journal import JournalWriter, Kind

_RawSocket: Any = gevent.monkey.get_original("socket", "socket")
READ_BYTES = 256 * 1024
_OK_STATUS = 200  # below it: interim answers (1xx), another head follows


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to connect: an address resolved once, before the load."""

    family: AddressFamily
    address: tuple[Any, ...]


class Exchange:
    """One request and its answer on a connection; lives from `start` until `finish`."""

    __slots__ = ("complete", "end_s", "got_bytes", "index", "reason", "waiter")

    def __init__(self, index: int) -> None:
        self.index = index
        self.waiter: Any = Waiter()
        self.got_bytes = False
        self.complete = False
        self.reason = ""
        self.end_s = 0.0


class Connection:
    """A socket with its watcher and its HTTP framing; carries one exchange at a time."""

    __slots__ = ("_exchange", "_journal", "_parser", "_recv", "_watcher", "is_alive", "sock")

    def __init__(self, sock: Any, journal: JournalWriter) -> None:
        self.sock = sock
        self._recv: Callable[..., Any] = sock.recvmsg
        self._watcher: Any = get_hub().loop.io(sock.fileno(), 1)
        self._journal = journal
        self._exchange: Exchange | None = None
        self._parser: Any = None
        self.is_alive = True

    def on_message_complete(self) -> None:
        """Called by httptools inside `feed_data`; only notes it, waking comes after."""
        if self._exchange is not None and self._parser.get_status_code() >= _OK_STATUS:
            self._exchange.complete = True
            self.is_alive = self._parser.should_keep_alive()  # only true to ask in here

    def start(self, exchange: Exchange) -> None:
        """Begin to listen for the answer; call before the request is sent."""
        self._exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        self._watcher.start(self._on_readable)

    def _on_readable(self) -> None:
        exchange = self._exchange
        if exchange is None:
            self._watcher.stop()
            return
        try:
            data, ancillary, _, _ = self._recv(READ_BYTES, stamps.ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.finish(f"reset: {error.strerror or error}", monotonic())
            return
        t_s, late_s, is_kernel = stamps.arrival(ancillary)
        if not data:
            self.finish("eof", t_s)
            return
        exchange.got_bytes = True
        kind = Kind.READ if is_kernel else Kind.READ_USER
        self._journal.append(kind, exchange.index, t_s, late_s, data)
        try:
            self._parser.feed_data(data)
        except Exception as error:  # noqa: BLE001 - whatever a server sends must not stop the loop
            self.finish(f"garbage: {error}", t_s)
            return
        if exchange.complete:
            self.finish("complete", t_s)

    def finish(self, reason: str, t_s: float) -> None:
        """End the exchange, once: stop listening and wake its greenlet."""
        exchange, self._exchange = self._exchange, None
        self._watcher.stop()
        if reason != "complete":
            self.is_alive = False
        if exchange is not None:
            exchange.reason, exchange.end_s = reason, t_s
            exchange.waiter.switch(None)

    def close(self) -> None:
        """Close the socket; the server sees that a running request is cancelled."""
        self._watcher.stop()
        self._watcher.close()
        self.sock.close()
        self.is_alive = False


class Client:
    """Sends calls over kept-alive connections, with no limit of its own on their number."""

    def __init__(self, target: Target, journal: JournalWriter, *, timeout_s: float) -> None:
        self._target = target
        self._journal = journal
        self._timeout_s = timeout_s
        self._idle: list[Connection] = []
        self._busy: dict[int, Connection] = {}

    def send(self, index: int, data: bytes) -> tuple[float, str]:
        """Play one request to its end; returns (end on the monotonic clock, reason).

        `reason` is `complete`, or why not; it is journalled. A kept-alive connection that had
        died before any byte of the answer is replaced once (servers close idle ones).
        """
        reused = self._idle.pop() if self._idle else None
        end_s, reason, is_stale = self._attempt(index, data, reused)
        if is_stale:
            self._journal.append(Kind.RETRY, index, monotonic())
            end_s, reason, _ = self._attempt(index, data, None)
        self._journal.append(Kind.END, index, end_s, 0.0, reason.encode())
        return end_s, reason

    def cancel_all(self, reason: str) -> None:
        """Cut off every running request; their greenlets wake in the hub's next round."""
        for connection in list(self._busy.values()):
            get_hub().loop.run_callback(connection.finish, reason, monotonic())

    def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _attempt(
        self, index: int, data: bytes, connection: Connection | None
    ) -> tuple[float, str, bool]:
        is_reused = connection is not None
        if connection is None:
            try:
                connection = self._connect(index)
            except OSError as error:
                return monotonic(), f"connect: {error.strerror or error}", False
        exchange = Exchange(index)
        connection.start(exchange)
        self._busy[index] = connection
        timer = get_hub().loop.timer(self._timeout_s)
        timer.start(connection.finish, "timeout", monotonic() + self._timeout_s)
        try:
            self._send_all(connection, data, exchange)
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
        is_dead = exchange.reason == "eof" or exchange.reason.startswith("reset")
        return exchange.end_s, exchange.reason, is_reused and is_dead and not exchange.got_bytes

    def _send_all(self, connection: Connection, data: bytes, exchange: Exchange) -> None:
        view = memoryview(data)
        try:
            while view and not exchange.reason:
                try:
                    view = view[connection.sock.send(view) :]
                except BlockingIOError:
                    gevent.socket.wait_write(connection.sock.fileno(), self._timeout_s)
        except OSError as error:
            connection.finish(f"reset: {error.strerror or error}", monotonic())
            return
        self._journal.append(Kind.SENT, exchange.index, monotonic())

    def _connect(self, index: int) -> Connection:
        begin_s = monotonic()
        sock = _RawSocket(self._target.family, SOCK_STREAM)
        try:
            sock.setblocking(False)  # noqa: FBT003
            sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
            stamps.enable(sock)
            code = sock.connect_ex(self._target.address)
            if code == errno.EINPROGRESS:
                gevent.socket.wait_write(sock.fileno(), timeout=self._timeout_s)
                code = sock.getsockopt(gevent.socket.SOL_SOCKET, gevent.socket.SO_ERROR)
            if code:
                raise OSError(code, errno.errorcode.get(code, str(code)))  # noqa: TRY301
        except BaseException:
            sock.close()
            raise
        now_s = monotonic()
        self._journal.append(Kind.CONNECTED, index, now_s, now_s - begin_s)
        return Connection(sock, self._journal)


def resolve(host: str, port: int) -> Target:
    """Resolve once, so that no request waits for a name server; OSError if it cannot be."""
    infos = gevent.socket.getaddrinfo(host, port, type=SOCK_STREAM)
    family, _, _, _, address = next((i for i in infos if i[0] != AF_INET6), infos[0])
    return Target(family=AddressFamily(family), address=tuple(address))
