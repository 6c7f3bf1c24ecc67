"""A socket in the event loop with its HTTP framing: reads, stamps and journals, parses no body.

A greenlet that waits for every read costs twice as much as reading in the hub's io callback
(design.md 5): the callback reads, stamps, journals, feeds the framing, and wakes the waiting
greenlet once. This module must not parse bodies, and must do no work at the end of an answer:
streams end together, and what is done there stalls all others.
"""

from collections.abc import Callable
from contextlib import suppress
from socket import IPPROTO_TCP, SHUT_RDWR, SOCK_STREAM, TCP_NODELAY
from time import monotonic
from typing import Any

import gevent.monkey
from gevent.hub import get_hub

from harness.load.journal import HEADER, JournalWriter, Kind
from harness.load.wire import socket_calls
from harness.load.wire.exchange import Exchange
from harness.load.wire.framing import Framing
from harness.load.wire.poller import READ_BYTES, Ancillary, Poller
from harness.load.wire.stamps import Clocks, arrival, enable
from harness.load.wire.tls import CertificateError, TlsStream

__all__ = ["READ_BYTES", "Connection", "Exchange"]

_RawSocket: Any = gevent.monkey.get_original("socket", "socket")
_READ, _READ_USER = int(Kind.READ), int(Kind.READ_USER)


class Connection:
    """Carries one exchange at a time; between two it sees when the server closes.

    Args:
        family: of the address.
        journal: what is read goes there, decrypted.
        poller: tells when there is something to read.
        tls: the encryption of this connection, if any.
        mask: applied to what is journalled, keeps its length.
    """

    __slots__ = (
        "_exchange",
        "_framing",
        "_is_sending",
        "_journal",
        "_mask",
        "_poller",
        "_tls",
        "is_alive",
        "sock",
    )

    def __init__(
        self,
        family: int,
        journal: JournalWriter,
        poller: Poller,
        *,
        tls: TlsStream | None = None,
        mask: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.sock = _RawSocket(family, SOCK_STREAM)
        self.sock.setblocking(False)  # noqa: FBT003
        self.sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        enable(self.sock)
        self._poller = poller
        self._journal = journal
        self._framing = Framing()
        self._tls = tls
        self._mask = mask
        self._exchange: Exchange | None = None
        self._is_sending = False
        self.is_alive = True

    def begin(self, exchange: Exchange) -> None:
        """Belong to this exchange from now on, so that it can be cut off at any time."""
        self._exchange = exchange

    def connect(self, address: tuple[Any, ...], exchange: Exchange) -> None:
        """Connect within the exchange, TLS included; what goes wrong ends it."""
        begin_s, reason = monotonic(), ""
        try:
            socket_calls.connect(self.sock, address)
            if self._tls is not None and not exchange.reason:
                socket_calls.shake_hands(self.sock, self._tls, self._poller.read_now)
        except CertificateError as error:
            reason = f"connect: {error}"
        except OSError as error:
            reason = f"connect: {socket_calls.error_name(error)}"
        now_s = monotonic()
        if reason:
            self.finish(reason, now_s)
        elif not exchange.reason:
            self._journal.append(Kind.CONNECTED, exchange.index, now_s, now_s - begin_s)

    def send_all(self, data: bytes, exchange: Exchange) -> None:
        """Listen for the answer and send the request; what goes wrong ends the exchange."""
        if self._tls is not None:
            data = self._tls.encrypt(data)
        self._poller.listen(self.sock, self._taker(exchange), self._fail)
        self._is_sending, sent_s = True, None
        try:
            sent_s = socket_calls.send(self.sock, data, lambda: bool(exchange.reason))
        except OSError as error:
            self.finish(f"reset: {error.strerror or error}", monotonic())
        self._is_sending = False
        if sent_s is None:
            self.is_alive = False  # answered or cut off before all of it was sent
        else:
            self._journal.append(Kind.SENT, exchange.index, sent_s)

    def _taker(self, exchange: Exchange) -> Callable[[bytes, Ancillary, Clocks], None]:
        """What takes the reads of an exchange: once a token, so all it needs are its locals."""
        put, pack = self._journal.put, HEADER.pack
        feed, mask, tls = self._framing.begin(exchange), self._mask, self._tls
        index, kept = exchange.index, exchange.kept

        def take(data: bytes, ancillary: Ancillary, clocks: Clocks) -> None:
            if exchange.reason:  # it has just ended
                return
            t_s, late_s, is_kernel = arrival(ancillary, clocks)
            try:
                if tls is not None or not data:
                    data = self._decrypted(data, t_s)
                    if not data:
                        return
                exchange.got_bytes = True
                exchange.last, exchange.last_s = data, t_s
                if not is_kernel:
                    exchange.unstamped_reads += 1
                if kept is not None:
                    kept.append(data)
                payload = data if mask is None else mask(data)
                put(pack(_READ if is_kernel else _READ_USER, index, t_s, late_s, len(payload)))
                put(payload)
                feed(data)
                if exchange.complete:
                    self.finish("complete", t_s)
                elif tls is not None and tls.is_ended:
                    self._end(t_s)
            except Exception as error:  # noqa: BLE001 - whatever comes must not stop the loop
                self._fail(error, t_s)

        return take

    def _decrypted(self, data: bytes, t_s: float) -> bytes:
        """The plain bytes of a read, if there are any yet; the end of file ends the exchange."""
        if data and self._tls is not None:
            data = self._tls.decrypt(data)
            if data or not self._tls.is_ended:
                return data
        self._end(t_s)
        return b""

    def _end(self, t_s: float) -> None:
        """The server sends no more: the end of the answer too, if nothing but that ends it."""
        self._framing.keeps_alive = False
        exchange = self._exchange
        is_whole = exchange is not None and exchange.status and not exchange.is_framed
        self.finish("complete" if is_whole else "eof", t_s)

    def _fail(self, error: Exception, t_s: float | None = None) -> None:
        self._framing.keeps_alive = False
        reason = f"garbage: {error}"
        if isinstance(error, OSError):
            reason = f"reset: {error.strerror or error}"
        # bytes behind a whole answer only cost the connection
        is_whole = self._exchange is not None and self._exchange.complete
        self.finish("complete" if is_whole else reason, t_s or monotonic())

    def finish(self, reason: str, t_s: float) -> None:
        """End the exchange, once, and wake its greenlet, wherever it waits."""
        exchange, self._exchange = self._exchange, None
        is_whole = exchange is not None and exchange.complete and not self._is_sending
        if reason != "complete" or not is_whole or not self._framing.keeps_alive:
            self.is_alive = False
            self._poller.drop(self.sock)
            with suppress(OSError):
                self.sock.shutdown(SHUT_RDWR)  # wakes a greenlet that waits for the socket
        else:
            # whatever comes now was not asked for
            self._poller.listen(self.sock, self.close, self.close)
        if exchange is not None:
            exchange.reason, exchange.end_s = reason, t_s
            # not at once: streams end together, and what their users do next stalls the others
            get_hub().loop.run_callback(exchange.waiter.switch, None)

    def close(self, *_: object) -> None:
        """Close the socket, once; the server sees that a running request is cancelled."""
        self.is_alive = False
        if self.sock.fileno() < 0:
            return
        self._poller.drop(self.sock)
        self._framing.drop()
        if self._tls is not None:
            with suppress(OSError):
                self.sock.send(self._tls.farewell())
        self.sock.close()
