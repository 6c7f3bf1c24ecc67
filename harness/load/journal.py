"""The raw journal: every read with its stamp, append-only, as it came off the socket.

File: magic, then entries of a fixed header and `size` payload bytes. An entry that was cut by
`kill -9` is the last one and is dropped on reading; at most `FLUSH_S` of entries are lost.
Times are absolute monotonic seconds; the OPEN entry carries the run's zero.
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness.errors import StoreFormatError

MAGIC = b"bakeoff journal 1\n"
HEADER = struct.Struct("<BIddI")  # kind, request, t_s, extra, payload bytes
FLUSH_S = 0.2


class Kind(IntEnum):
    """What an entry says; in brackets what `extra` and the payload hold."""

    OPEN = 0  # (wall clock; JSON: versions, pid)
    DUE = 1  # t_s is the due time (level; user as text or empty)
    CONNECTED = 2  # t_s when connected (seconds it took)
    SENT = 3  # t_s when the last request bytes were handed over
    READ = 4  # t_s by the kernel's stamp (lateness; bytes)
    READ_USER = 5  # t_s by our clock (0; bytes)
    END = 6  # (0; reason)
    RETRY = 7  # a pooled connection had died before any byte: sent again once
    LEVEL = 8  # a level's end (level; JSON: start_s, window_end_s, played, exhausted, client, ...)
    LEVEL_BEGIN = 9  # (level; JSON: name)
    AGAIN = 10  # answered with 429 and to be sent again (seconds until then)
    CHANNEL = 11  # the request goes over gRPC (number of its connection in this journal)


class Entry(NamedTuple):
    """One entry of the journal."""

    kind: int
    request: int
    t_s: float
    extra: float
    payload: bytes


class JournalWriter:
    """Collects entries in memory; `flush` appends them to the file.

    OSError of the disk is kept in `error` and stops further writing; the load looks at it and
    ends. `put` takes bytes as they are: whoever writes an entry a token calls it twice, with a
    header and its payload, and saves the call of `append`.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._parts: list[bytes] = [MAGIC]
        self.put: Callable[[bytes], None] = self._parts.append
        self.error: OSError | None = None

    def append(
        self, kind: int, request: int, t_s: float, extra: float = 0.0, payload: bytes = b""
    ) -> None:
        """Add one entry; nothing is written before `flush`."""
        self.put(HEADER.pack(kind, request, t_s, extra, len(payload)))
        if payload:
            self.put(payload)

    def append_json(self, kind: int, t_s: float, extra: float = 0.0, **content: Any) -> None:
        """Add an entry whose payload is a JSON object."""
        self.append(kind, 0, t_s, extra, msgspec.json.encode(content))

    def flush(self) -> None:
        """Hand everything to the system; after that it survives our own death."""
        data = memoryview(b"".join(self._parts))
        self._parts.clear()
        if self.error:
            return
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self.error = error

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        os.close(self._fd)


def read_entries(path: Path) -> Iterator[Entry]:
    """All whole entries of a journal in the order written; a cut last one is left out."""
    with path.open("rb") as file:
        magic = file.read(len(MAGIC))
        if not MAGIC.startswith(magic):
            raise StoreFormatError(f"{path}: not a journal of this version")
        while len(head := file.read(HEADER.size)) == HEADER.size:
            kind, request, t_s, extra, size = HEADER.unpack(head)
            payload = file.read(size) if size else b""
            if len(payload) < size:
                return
            yield Entry(kind, request, t_s, extra, payload)


def json_payload(entry: Entry) -> Mapping[str, Any]:
    """The JSON object that an OPEN or LEVEL entry carries."""
    content: Mapping[str, Any] = msgspec.json.decode(entry.payload)
    return content
