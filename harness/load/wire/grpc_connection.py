"""A socket in the event loop that carries gRPC calls over HTTP/2: reads, stamps and journals.

The sibling of `connection.Connection`, with the same interface: everything happens in the hub's
io callbacks, and the waiting greenlet is woken once, when the answer is complete. What the answer
says, its headers too, is decoded after the load.
Between two calls the connection goes on listening: pings are answered, and what came while nobody
waited is not read late in the name of the next call.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from socket import IPPROTO_TCP, SHUT_RDWR, SOCK_STREAM, TCP_NODELAY
from time import monotonic
from typing import Any

import gevent.monkey
from gevent.hub import get_hub

from harness.grpc.client import Http2Client
from harness.load.journal import JournalWriter, Kind
from harness.load.wire import socket_calls
from harness.load.wire.exchange import Exchange
from harness.load.wire.grpc_reader import READ_BYTES, broken_by, reader
from harness.load.wire.stamps import enable

_RawSocket: Any = gevent.monkey.get_original("socket", "socket")
_READABLE, _WRITABLE = 1, 2
_numbers = count()
_STATUS = 200  # that of every gRPC answer; what it says is in its trailers
_NO_MESSAGE_STATUS = 500  # ended without a single message: a refusal


class GrpcConnection:
    """A socket with its watchers and its HTTP/2 state; carries one exchange at a time.

    Args:
        family: of the address.
        journal: what is read while an exchange runs goes there.
        mask: applied to what is journalled, keeps its length; None: nothing is secret.
    """

    __slots__ = (
        "_exchange",
        "_http2",
        "_is_unsent",
        "_journal",
        "_mask",
        "_number",
        "_watcher",
        "_writable",
        "is_alive",
        "sock",
    )

    def __init__(
        self,
        family: int,
        journal: JournalWriter,
        *,
        mask: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.sock = _RawSocket(family, SOCK_STREAM)
        self.sock.setblocking(False)  # noqa: FBT003
        self.sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        enable(self.sock)
        loop = get_hub().loop
        self._watcher: Any = loop.io(self.sock.fileno(), _READABLE)
        self._writable: Any = loop.io(self.sock.fileno(), _WRITABLE)
        self._journal = journal
        self._mask = mask
        self._number = next(_numbers)
        self._exchange: Exchange | None = None
        self._http2 = Http2Client()
        self._is_unsent = False
        self.is_alive = True

    def begin(self, exchange: Exchange) -> None:
        """Belong to this exchange from now on; the journal says on which connection it runs."""
        self._exchange = exchange
        self._journal.append(Kind.CHANNEL, exchange.index, monotonic(), self._number)

    def connect(self, address: tuple[Any, ...], exchange: Exchange) -> None:
        """Connect within the exchange; what goes wrong ends it."""
        begin_s, reason = monotonic(), ""
        try:
            socket_calls.connect(self.sock, address)
        except OSError as error:
            reason = f"connect: {socket_calls.error_name(error)}"
        now_s = monotonic()
        if reason:
            self.finish(reason, now_s)
        elif not exchange.reason:
            self._journal.append(Kind.CONNECTED, exchange.index, now_s, now_s - begin_s)

    def send_all(self, data: bytes, exchange: Exchange) -> None:
        """Begin the call; what does not go at once follows when socket and windows allow it.

        `data` as written by `grpc_bytes`. What goes wrong ends the exchange.
        """
        if not self.is_alive or self._http2.is_inside:
            self.finish("reset: the connection died while it was idle", monotonic())
            return
        self._is_unsent = True
        self._http2.request(data)
        callback = reader(
            exchange,
            self._http2,
            recv=self.sock.recvmsg,
            put=self._journal.put,
            mask=self._mask,
            finish=self.finish,
            flush=self._flush,
        )
        if self._watcher.active:
            self._watcher.callback = callback
        else:
            self._watcher.start(callback)
        self._flush()
        if exchange.reason:
            self.is_alive = False

    def _flush(self) -> None:
        """Send what waits, unless the connection has died meanwhile."""
        if not self.is_alive:
            return
        sent_s = 0.0
        try:
            while out := self._http2.outflow.pump():
                sent_s = monotonic()  # before the call: on loopback the answer may overtake its end
                del out[: self.sock.send(out)]
        except BlockingIOError:
            self._writable.start(self._flush)
            return
        except OSError as error:
            self.finish(f"reset: {error.strerror or error}", monotonic())
            return
        self._writable.stop()
        if self._is_unsent and self._http2.outflow.is_empty and self._exchange is not None:
            self._is_unsent = False
            self._journal.append(Kind.SENT, self._exchange.index, sent_s)

    def _on_idle(self) -> None:
        """Between two exchanges: replies to what the server asks, and whether it has gone."""
        reason = "eof"
        try:
            if data := self.sock.recv(READ_BYTES):
                reason = ""
                self._http2.feed(data)
        except BlockingIOError:
            return
        except Exception as error:  # noqa: BLE001 - whatever comes must not stop the loop
            reason = broken_by(error)
        if reason or self._http2.is_leaving:
            self.finish(reason or "goaway", monotonic())
        elif self._http2.outflow.out:
            self._flush()

    def finish(self, reason: str, t_s: float) -> None:
        """End the exchange, once, and wake its greenlet; only after a whole answer it listens on.

        Without an exchange the connection has died while it was idle.
        """
        exchange, self._exchange = self._exchange, None
        http2 = self._http2
        if reason != "complete" or not http2.is_complete or self._is_unsent or http2.is_leaving:
            self.is_alive = False
        if not self.is_alive:
            self._watcher.stop()
            self._writable.stop()
            with suppress(OSError):
                self.sock.shutdown(SHUT_RDWR)  # wakes a greenlet that waits to connect
        elif self._watcher.active:
            self._watcher.callback = self._on_idle
        if exchange is not None:
            if reason == "complete":
                exchange.complete = True
                exchange.status = _STATUS if http2.has_data else _NO_MESSAGE_STATUS
            exchange.reason, exchange.end_s = reason, t_s
            exchange.waiter.switch(None)

    def close(self) -> None:
        """Close the socket; the server sees that a running call is cancelled."""
        self._watcher.stop()
        self._watcher.close()
        self._writable.stop()
        self._writable.close()
        self.sock.close()
        self.is_alive = False
