"""The client of the hot path: sends calls over kept-alive connections, each to its end."""

from time import monotonic
from typing import NamedTuple

from harness.grpc.kept import read_grpc_answer
from harness.load.journal import JournalWriter, Kind
from harness.load.wire.exchange import Exchange
from harness.load.wire.kept import read_answer
from harness.load.wire.pool import Pool
from harness.load.wire.retry_after import retry_after_s
from harness.load.wire.secrets import with_key
from harness.load.wire.stats import ClientStats
from harness.load.wire.target import ResolvedTarget, resolve
from harness.types import ResponseHead, Wire

__all__ = ["Client", "ClientStats", "Ended", "ResolvedTarget", "resolve"]

_FIRST_ERROR_STATUS = 400
_TOO_MANY = 429


class Ended(NamedTuple):
    """How one request ended: when on the monotonic clock, why, and the HTTP status (0: none).

    `head`, `pieces`: the answer without framing and compression, if it was to be kept: one body
    over HTTP, each message over gRPC.
    """

    end_s: float
    reason: str
    status: int
    head: ResponseHead | None = None
    pieces: tuple[bytes, ...] = ()

    @property
    def is_good(self) -> bool:
        """An answer came whole and is no HTTP error; what it says is not known here."""
        return self.reason == "complete" and self.status < _FIRST_ERROR_STATUS


class Client:
    """Sends calls to one server.

    Args:
        target: where to, see `resolve`.
        journal: all that happens goes there.
        timeout_s: of a request, from its first try to its end.
        retries: how often a request that is answered with 429 is sent again.
    """

    def __init__(
        self, target: ResolvedTarget, journal: JournalWriter, *, timeout_s: float, retries: int = 0
    ) -> None:
        self.stats = ClientStats()
        self._journal = journal
        self._timeout_s = timeout_s
        self._retries = retries
        self._key = target.api_key
        self._read = read_grpc_answer if target.wire is Wire.GRPC else read_answer
        self._pool = Pool(target, journal, timeout_s=timeout_s, stats=self.stats)

    def send(self, index: int, data: bytes, *, keep: bool = False) -> Ended:
        """Play one request to its end; returns when and why it ended.

        `reason` is `complete`, or why not; it is journalled, once. A kept-alive connection that
        had died before any byte of the answer is replaced once (servers close idle ones). After
        a 429 the request is sent again when the server says, if it may be and if that is before
        the time limit; else the 429 is its answer. `keep`: give back the answer as well.
        """
        stats = self.stats
        stats.in_flight += 1
        stats.peak_in_flight = max(stats.peak_in_flight, stats.in_flight)
        try:
            exchange = self._play(index, with_key(data, self._key), keep=keep)
        except BaseException:  # the greenlet was killed
            self._journal.append(Kind.END, index, monotonic(), 0.0, b"cut off")
            raise
        finally:
            stats.in_flight -= 1
        end_s, reason, status = exchange.end_s, exchange.reason, exchange.status
        self._journal.append(Kind.END, index, end_s, 0.0, reason.encode())
        if exchange.kept is None:
            return Ended(end_s, reason, status)
        return Ended(end_s, reason, status, *self._read(b"".join(exchange.kept)))

    def cancel_all(self, reason: str) -> None:
        """Cut off every running request; their greenlets wake in the hub's next round."""
        self._pool.cancel_all(reason)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    def _play(self, index: int, data: bytes, *, keep: bool) -> Exchange:
        deadline_s = monotonic() + self._timeout_s
        for left in range(self._retries, -1, -1):
            exchange = self._pool.play(index, data, deadline_s, keep=keep)
            if exchange.status != _TOO_MANY or exchange.reason != "complete" or not left:
                break
            pause_s = retry_after_s(exchange.retry_after)
            if exchange.end_s + pause_s >= deadline_s:
                break
            self._journal.append(Kind.AGAIN, index, exchange.end_s, pause_s)
            self.stats.retries += 1
            if reason := self._pool.pause(index, exchange.end_s + pause_s):
                exchange.reason, exchange.end_s = reason, monotonic()
                break
        return exchange
