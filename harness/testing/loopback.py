"""The load's client in this process, against a server on loopback; its journal is read back."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import gevent

from harness.load.calls import http_bytes
from harness.load.job import Target
from harness.load.journal import Entry, JournalWriter, Kind, read_entries
from harness.load.wire.client import Client, Ended, resolve
from harness.types import HttpCall


class Loopback:
    """Sends requests and tells what the journal says of them; see `loopback`."""

    def __init__(self, client: Client, journal: JournalWriter, path: Path, host: str) -> None:
        self.client = client
        self.path = path
        self._journal = journal
        self._host = host
        self._numbers = count()

    def send(self, path: str, *, body: bytes = b"{}", keep: bool = False) -> Ended:
        """Send one request to its end; requests are numbered from 0."""
        index = next(self._numbers)
        data = http_bytes(HttpCall(path=path, body=body), host=self._host, request_id=str(index))
        self._journal.append(Kind.DUE, index, 0.0)
        return self.client.send(index, data, keep=keep)

    def send_together(self, *paths: str) -> list[Ended]:
        """Send requests at the same time; how each of them ended."""
        greenlets = [gevent.spawn(self.send, path) for path in paths]
        gevent.joinall(greenlets, raise_error=True)
        return [greenlet.value for greenlet in greenlets]

    def entries(self, kind: Kind | None = None, request: int | None = None) -> list[Entry]:
        """What has been journalled so far, of a kind and of a request if they are given."""
        self._journal.flush()
        return [
            entry
            for entry in read_entries(self.path)
            if kind in {None, entry.kind} and request in {None, entry.request}
        ]

    def body(self, request: int) -> bytes:
        """All bytes that were read for a request, framing included."""
        reads = (Kind.READ, Kind.READ_USER)
        return b"".join(e.payload for e in self.entries(request=request) if e.kind in reads)


@contextmanager
def loopback(
    folder: Path,
    port: int,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = 5.0,
    retries: int = 0,
    **target: Any,
) -> Iterator[Loopback]:
    """A client with a journal in `folder`; `target`: fields of Target."""
    journal = JournalWriter(folder / "journal.bin")
    resolved = resolve(Target(host=host, port=port, **target))
    client = Client(resolved, journal, timeout_s=timeout_s, retries=retries)
    try:
        yield Loopback(client, journal, folder / "journal.bin", host)
    finally:
        client.close()
        journal.close()
