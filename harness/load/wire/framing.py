"""The HTTP framing of a connection: where an answer ends, and what of its head the client needs."""

from collections.abc import Callable
from typing import Any

import httptools

from harness.load.wire.exchange import Exchange

_OK_STATUS = 200  # below it: interim answers (1xx), another head follows
_LENGTHS = {b"content-length", b"transfer-encoding"}
_RETRY_AFTER = b"retry-after"


class Framing:
    """Takes httptools' callbacks for one exchange after another; notes, and wakes nobody.

    `keeps_alive`: whether another exchange may follow on the connection.
    """

    __slots__ = ("_exchange", "_parser", "keeps_alive")

    def __init__(self) -> None:
        self._exchange: Exchange | None = None
        self._parser: Any = None
        self.keeps_alive = True

    def begin(self, exchange: Exchange) -> Callable[[bytes], None]:
        """Begin with a fresh parser; gives what is to be fed with the answer's bytes.

        That raises httptools' errors for what is not HTTP.
        """
        self._exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        feed: Callable[[bytes], None] = self._parser.feed_data
        return feed

    def drop(self) -> None:
        """Let go of the parser: it refers to us, and nobody collects cycles during a load."""
        self._exchange = self._parser = None

    def on_message_begin(self) -> None:
        """Called by httptools; behind a whole answer nothing may follow that was not asked for."""
        if self._exchange is not None and self._exchange.complete:
            self.keeps_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools."""
        exchange, name = self._exchange, name.lower()
        if exchange is None or exchange.complete:
            return
        if name in _LENGTHS:
            exchange.is_framed = True
        elif name == _RETRY_AFTER:
            exchange.retry_after = value

    def on_headers_complete(self) -> None:
        """Called by httptools; an interim answer leaves no trace."""
        exchange, status = self._exchange, self._parser.get_status_code()
        if exchange is None or exchange.complete:
            return
        if status >= _OK_STATUS:
            exchange.status = status
        else:
            exchange.is_framed, exchange.retry_after = False, None

    def on_message_complete(self) -> None:
        """Called by httptools inside `feed_data`; only notes it, waking comes after."""
        exchange = self._exchange
        if exchange is not None and exchange.status:
            exchange.complete = True
            # only true to ask in here
            self.keeps_alive = self.keeps_alive and self._parser.should_keep_alive()
