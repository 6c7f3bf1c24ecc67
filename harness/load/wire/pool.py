"""The connections of a client: one try of a request on one of them, kept or fresh."""

import re
from time import monotonic
from typing import Any

from gevent.event import AsyncResult
from gevent.hub import get_hub

from harness.load.journal import JournalWriter, Kind
from harness.load.wire.connection import Connection
from harness.load.wire.exchange import Exchange
from harness.load.wire.grpc_connection import GrpcConnection
from harness.load.wire.pace import Pace
from harness.load.wire.poller import Poller
from harness.load.wire.socket_calls import error_name
from harness.load.wire.stats import ClientStats
from harness.load.wire.target import ResolvedTarget

_LOOK_S = 0.25
_LINGER_S = 1.0
# The last thing that OpenAI's API says; a line of its own, so no text of an answer can be it.
_DONE = re.compile(rb"(?:^|\n)data: ?\[DONE\]\s*\Z")


class Pool:
    """Connections to one server, with no limit of its own on their number.

    Args:
        target: where to.
        journal: all that happens goes there.
        timeout_s: what the time limit is called when it is over.
        stats: is kept up to date.
    """

    def __init__(
        self,
        target: ResolvedTarget,
        journal: JournalWriter,
        *,
        timeout_s: float,
        stats: ClientStats,
    ) -> None:
        self._target = target
        self._journal = journal
        self._timeout_reason = f"timeout: no end after {timeout_s} s"
        self._stats = stats
        self._idle: list[Connection | GrpcConnection] = []
        self._busy: dict[int, tuple[Connection | GrpcConnection, Exchange]] = {}
        self._pauses: dict[int, AsyncResult] = {}
        self._poller = Poller()
        self._pace = Pace(self._poller, stats)
        self._looker: Any = get_hub().loop.timer(_LOOK_S, _LOOK_S, ref=False)
        self._looker.start(self._end_lingering)

    def play(self, index: int, data: bytes, deadline_s: float, *, keep: bool) -> Exchange:
        """Send a request once and wait for its end; gives the exchange, ended.

        A kept connection that had died before any byte of the answer is replaced once.
        """
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_alive:  # the server has closed it
                connection.close()
                continue
            exchange = Exchange(index, keep=keep)
            self._exchange(connection, exchange, data, deadline_s)
            if not exchange.is_dead:
                return exchange
            self._journal.append(Kind.RETRY, index, monotonic())
            self._stats.retries += 1
            break
        exchange = Exchange(index, keep=keep)
        try:
            connection = self._target.connection(self._journal, self._poller)
        except OSError as error:  # no file descriptor is left
            exchange.reason, exchange.end_s = f"connect: {error_name(error)}", monotonic()
            return exchange
        self._exchange(connection, exchange, data, deadline_s, is_fresh=True)
        return exchange

    def pause(self, index: int, until_s: float) -> str:
        """Wait on behalf of a request; gives why it was cut off meanwhile, or nothing."""
        pause = self._pauses[index] = AsyncResult()
        try:
            return pause.wait(max(0.0, until_s - monotonic())) or ""
        finally:
            del self._pauses[index]

    def cancel_all(self, reason: str) -> None:
        """End every running request; their greenlets wake in the hub's next round."""
        for connection, _ in list(self._busy.values()):
            get_hub().loop.run_callback(connection.finish, reason, monotonic())
        for pause in self._pauses.values():
            pause.set(reason)

    def close(self) -> None:
        """Close idle connections and look after none any more."""
        self._looker.stop()
        self._looker.close()
        while self._idle:
            self._idle.pop().close()
        self._pace.close()
        self._poller.close()

    def _exchange(
        self,
        connection: Connection | GrpcConnection,
        exchange: Exchange,
        data: bytes,
        deadline_s: float,
        *,
        is_fresh: bool = False,
    ) -> None:
        connection.begin(exchange)
        self._busy[exchange.index] = connection, exchange
        timer = get_hub().loop.timer(max(0.0, deadline_s - monotonic()))
        timer.start(connection.finish, self._timeout_reason, deadline_s)
        try:
            if is_fresh:
                connection.connect(self._target.address, exchange)
                self._stats.connects += not exchange.reason
            if not exchange.reason:
                connection.send_all(data, exchange)
            if not exchange.reason:
                exchange.waiter.get()
        finally:
            timer.stop()
            timer.close()
            del self._busy[exchange.index]
            self._stats.unstamped_reads += exchange.unstamped_reads
            if exchange.reason == "complete" and connection.is_alive:
                self._idle.append(connection)
            else:  # also when the greenlet was killed
                connection.close()

    def _end_lingering(self) -> None:
        """End answers whose last event came a second ago, on sockets that were left open."""
        before_s = monotonic() - _LINGER_S
        for connection, exchange in list(self._busy.values()):
            if exchange.last and exchange.last_s < before_s and _DONE.search(exchange.last):
                get_hub().loop.run_callback(connection.finish, "complete", monotonic())
