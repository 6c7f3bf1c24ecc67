"""A socket in the event loop with its HTTP framing: reads, stamps and journals, parses no body.

A greenlet that waits for every read costs twice as much as reading in the hub's io callback
(design.md 5), so the callback reads, stamps, journals and feeds the HTTP framing, and wakes the
waiting greenlet once, when the answer is complete. Nothing of the answer's meaning is looked at.
This module must not parse bodies, and must do no work at the end of an answer: streams end
together, and what is done there stalls all others.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from socket import IPPROTO_TCP, SHUT_RDWR, SO_ERROR, SOCK_STREAM, SOL_SOCKET, TCP_NODELAY
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


class Exchange:
    """One request and its answer on a connection; lives from `begin` until `finish`."""

    __slots__ = ("complete", "end_s", "got_bytes", "index", "reason", "status", "waiter")

    def __init__(self, index: int) -> None:
        self.index = index
        self.waiter: Any = Waiter()
        self.got_bytes = False
        self.complete = False
        self.reason = ""
        self.status = 0
        self.end_s = 0.0

    @property
    def is_dead(self) -> bool:
        """The connection died before any byte of the answer."""
        return not self.got_bytes and (self.reason == "eof" or self.reason.startswith("reset"))


class Connection:
    """A socket with its watcher and its HTTP framing; carries one exchange at a time."""

    __slots__ = ("_exchange", "_journal", "_parser", "_recv", "_watcher", "is_alive", "sock")

    def __init__(self, family: int, journal: JournalWriter) -> None:
        self.sock = _RawSocket(family, SOCK_STREAM)
        self.sock.setblocking(False)  # noqa: FBT003
        self.sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        stamps.enable(self.sock)
        self._recv: Callable[..., Any] = self.sock.recvmsg
        self._watcher: Any = get_hub().loop.io(self.sock.fileno(), 1)
        self._journal = journal
        self._exchange: Exchange | None = None
        self._parser: Any = None
        self.is_alive = True

    def begin(self, exchange: Exchange) -> None:
        """Belong to this exchange from now on, so that it can be cut off at any time."""
        self._exchange = exchange

    def connect(self, address: tuple[Any, ...], exchange: Exchange) -> None:
        """Connect within the exchange; what goes wrong ends it."""
        begin_s = monotonic()
        try:
            code = self.sock.connect_ex(address)
            if code == errno.EINPROGRESS:
                gevent.socket.wait_write(self.sock.fileno())
                code = self.sock.getsockopt(SOL_SOCKET, SO_ERROR)
        except OSError as error:
            code = error.errno or errno.EIO
        now_s = monotonic()
        if code:
            self.finish(f"connect: {errno.errorcode.get(code, str(code))}", now_s)
        elif not exchange.reason:
            self._journal.append(Kind.CONNECTED, exchange.index, now_s, now_s - begin_s)

    def send_all(self, data: bytes, exchange: Exchange) -> None:
        """Listen for the answer and send the request; what goes wrong ends the exchange."""
        self._parser = httptools.HttpResponseParser(self)
        self._watcher.start(self._on_readable)
        view, sent_s = memoryview(data), 0.0
        try:
            while view and not exchange.reason:
                sent_s = monotonic()  # before the call: on loopback the answer may overtake its end
                try:
                    view = view[self.sock.send(view) :]
                except BlockingIOError:
                    gevent.socket.wait_write(self.sock.fileno())
        except OSError as error:
            self.finish(f"reset: {error.strerror or error}", monotonic())
        if view:
            self.is_alive = False  # answered or cut off before all of it was sent
        else:
            self._journal.append(Kind.SENT, exchange.index, sent_s)

    def on_message_complete(self) -> None:
        """Called by httptools inside `feed_data`; only notes it, waking comes after."""
        status = self._parser.get_status_code()
        if self._exchange is not None and status >= _OK_STATUS:
            self._exchange.complete, self._exchange.status = True, status
            self.is_alive = self._parser.should_keep_alive()  # only true to ask in here

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
            self.is_alive = False
            if not exchange.complete:  # bytes behind a whole answer only cost the connection
                self.finish(f"garbage: {error}", t_s)
                return
        if exchange.complete:
            self.finish("complete", t_s)

    def finish(self, reason: str, t_s: float) -> None:
        """End the exchange, once: stop listening and wake its greenlet, wherever it waits."""
        exchange, self._exchange = self._exchange, None
        self._watcher.stop()
        if reason != "complete":
            self.is_alive = False
            with suppress(OSError):
                self.sock.shutdown(SHUT_RDWR)  # wakes a greenlet that waits to write
        if exchange is not None:
            exchange.reason, exchange.end_s = reason, t_s
            exchange.waiter.switch(None)

    def close(self) -> None:
        """Close the socket; the server sees that a running request is cancelled."""
        self._watcher.stop()
        self._watcher.close()
        self.sock.close()
        self.is_alive = False
