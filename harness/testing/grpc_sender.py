"""Plays gRPC calls one after another in the caller's own event loop, as the load's client does."""

import time
from pathlib import Path
from socket import AF_INET

from gevent.hub import get_hub

from harness.grpc.call import grpc_bytes
from harness.load.journal import Entry, JournalWriter, Kind, read_entries
from harness.load.wire.exchange import Exchange
from harness.load.wire.grpc_connection import GrpcConnection
from harness.types import HttpCall, Wire


class GrpcSender:
    """One connection at a time, reused while it is alive; calls are numbered from 0.

    `connection`: the one that is kept, or None.
    """

    def __init__(self, port: int, folder: Path, *, timeout_s: float = 5.0) -> None:
        self._address = ("127.0.0.1", port)
        self._timeout_s = timeout_s
        self._path = folder / "journal.bin"
        self._journal = JournalWriter(self._path)
        self._calls = 0
        self.connection: GrpcConnection | None = None

    def send(self, path: str, body: bytes = b"{}") -> Exchange:
        """Play one call to its end; only the caller's greenlet waits."""
        call = HttpCall(path=path, body=body, wire=Wire.GRPC)
        data = grpc_bytes(call, authority="localhost", request_id=str(self._calls))
        exchange = Exchange(self._calls)
        self._calls += 1
        is_new = self.connection is None
        connection = self.connection or GrpcConnection(AF_INET, self._journal)
        connection.begin(exchange)
        get_hub().loop.update_now()  # a test may have waited elsewhere, where the loop stood still
        with get_hub().loop.timer(self._timeout_s) as timer:
            timer.start(connection.finish, "timeout", time.monotonic() + self._timeout_s)
            if is_new:
                connection.connect(self._address, exchange)
            if not exchange.reason:
                connection.send_all(data, exchange)
            if not exchange.reason:
                exchange.waiter.get()
        self.connection = connection if connection.is_alive else None
        if not connection.is_alive:
            connection.close()
        return exchange

    def of(self, kind: Kind, index: int) -> list[Entry]:
        """The journal's entries of this kind for one call."""
        return [e for e in self._entries() if e.kind == kind and e.request == index]

    def reads(self, index: int) -> list[Entry]:
        """What was read for one call, by whatever clock it was stamped."""
        kinds = {Kind.READ, Kind.READ_USER}
        return [e for e in self._entries() if e.kind in kinds and e.request == index]

    def body(self, index: int) -> bytes:
        """All bytes that were read for one call."""
        return b"".join(e.payload for e in self.reads(index))

    def close(self) -> None:
        """Close connection and journal."""
        if self.connection is not None:
            self.connection.close()
        self._journal.close()

    def _entries(self) -> list[Entry]:
        self._journal.flush()
        return list(read_entries(self._path))
