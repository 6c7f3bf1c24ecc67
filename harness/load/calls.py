"""The requests of a run as bytes on disk, ready to send: made before the load, read by it.

Two files: `calls.bin` holds the HTTP requests one after another, `calls.idx` a fixed row for each
(offset, size, due time; NaN where a user's last answer decides). Requests keep their plan index.
"""

import math
import mmap
import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from harness.types import HttpCall

_ROW = struct.Struct("<QId")


class Call(NamedTuple):
    """One request: its bytes, and when it is due after the start of its level (or None)."""

    data: bytes
    due_s: float | None


def http_bytes(call: HttpCall, *, host: str, request_id: str) -> bytes:
    """One HTTP/1.1 request as it goes over the wire; no header is added twice."""
    headers = {
        "Host": host,
        "User-Agent": "bakeoff",
        "Accept": "text/event-stream, application/json",
        "X-Request-Id": request_id,
        "Content-Length": str(len(call.body)),
    }
    if call.body:
        headers["Content-Type"] = "application/json"
    given = {name.lower() for name in call.headers}
    headers = {name: value for name, value in headers.items() if name.lower() not in given}
    headers.update(call.headers)
    lines = [f"{call.method} {call.path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + call.body


def write_calls(folder: Path, calls: Iterable[tuple[bytes, float | None]]) -> int:
    """Write (bytes, due time) pairs in index order; returns how many."""
    offset = count = 0
    with (folder / "calls.bin").open("wb") as body, (folder / "calls.idx").open("wb") as rows:
        for data, due_s in calls:
            body.write(data)
            rows.write(_ROW.pack(offset, len(data), math.nan if due_s is None else due_s))
            offset += len(data)
            count += 1
    return count


class Calls:
    """Random access to written calls; the bytes stay in the page cache, not on our heap."""

    def __init__(self, folder: Path) -> None:
        self._rows = (folder / "calls.idx").read_bytes()
        self._file = (folder / "calls.bin").open("rb")
        self._bytes = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)

    def __len__(self) -> int:
        return len(self._rows) // _ROW.size

    def __getitem__(self, index: int) -> Call:
        offset, size, due_s = _ROW.unpack_from(self._rows, index * _ROW.size)
        data = self._bytes[offset : offset + size]
        return Call(data, None if math.isnan(due_s) else due_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bytes.close()
        self._file.close()
