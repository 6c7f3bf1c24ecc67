"""The requests of some levels as bytes on disk: made before they are played, read by the load.

Three files: `calls.bin` holds the requests one after another, `calls.idx` a fixed row for each
(where its bytes are, when it is due, what was planned), `calls.json` the names that rows number.
Requests keep their index over the whole run; a folder may begin at any index. Of an ordinary
level the bytes are the HTTP request; of a level of sessions they are a `Request` as JSON, which
is encoded when its history is known.
"""

import math
import mmap
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from harness.grpc.call import grpc_bytes
from harness.load.job import Target
from harness.types import HttpCall, Wire

# offset, size, due_s (NaN: a user's last answer decides), input, output and prefix tokens,
# session, turn, group and lora (-1: none)
_ROW = struct.Struct("<QIdIIIiiii")
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What the plan knew of a request; its record has it beside what came of it."""

    input_tokens: int
    output_tokens: int
    prefix_tokens: int = 0
    session: int | None = None
    turn: int | None = None
    group: str | None = None
    lora: str | None = None


class Call(NamedTuple):
    """One request: its bytes, and when it is due after the start of its level (or None)."""

    data: bytes
    due_s: float | None


class PlannedCall(NamedTuple):
    """One request to be written: its bytes, its due time, and what was planned."""

    data: bytes
    due_s: float | None
    planned: Planned


def call_bytes(call: HttpCall, target: Target, index: int) -> bytes:
    """A call to this server as it goes over the wire; the server's path comes before its own."""
    if call.wire is Wire.GRPC:
        return grpc_bytes(call, authority=target.authority, request_id=str(index))
    call = replace(call, path=target.prefix + call.path)
    return http_bytes(call, host=target.authority, request_id=str(index))


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


class _Names:
    """Numbers for names, in the order in which they are first seen."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str | None) -> int:
        return _NONE if name is None else self._numbers.setdefault(name, len(self._numbers))

    def listed(self) -> list[str]:
        return list(self._numbers)


def write_calls(folder: Path, calls: Iterable[PlannedCall], *, first: int = 0) -> int:
    """Write requests in index order, the first of them with index `first`; returns how many."""
    offset = count = 0
    groups, loras = _Names(), _Names()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "calls.bin").open("wb") as body, (folder / "calls.idx").open("wb") as rows:
        for data, due_s, planned in calls:
            body.write(data)
            rows.write(
                _ROW.pack(
                    offset,
                    len(data),
                    math.nan if due_s is None else due_s,
                    planned.input_tokens,
                    planned.output_tokens,
                    planned.prefix_tokens,
                    _NONE if planned.session is None else planned.session,
                    _NONE if planned.turn is None else planned.turn,
                    groups.number(planned.group),
                    loras.number(planned.lora),
                )
            )
            offset += len(data)
            count += 1
    names = {"first": first, "groups": groups.listed(), "loras": loras.listed()}
    (folder / "calls.json").write_bytes(msgspec.json.encode(names))
    return count


class PlannedCalls:
    """What was planned of each written request, from the index alone.

    `first`: the index of the first request; `len`: how many there are.
    """

    def __init__(self, folder: Path) -> None:
        names: Mapping[str, object] = msgspec.json.decode((folder / "calls.json").read_bytes())
        self.first = int(str(names["first"]))
        self._groups = msgspec.convert(names["groups"], list[str])
        self._loras = msgspec.convert(names["loras"], list[str])
        self._rows = (folder / "calls.idx").read_bytes()

    def __len__(self) -> int:
        return len(self._rows) // _ROW.size

    def __contains__(self, index: int) -> bool:
        return self.first <= index < self.first + len(self)

    def place(self, index: int) -> tuple[int, int]:
        """Where the bytes of this request are in `calls.bin`: offset and size."""
        offset, size = _ROW.unpack_from(self._rows, (index - self.first) * _ROW.size)[:2]
        return offset, size

    def planned(self, index: int) -> Planned:
        """What was planned of the request with this index."""
        numbers = _ROW.unpack_from(self._rows, (index - self.first) * _ROW.size)
        _, _, _, input_tokens, output_tokens, prefix_tokens, session, turn, group, lora = numbers
        return Planned(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            prefix_tokens=prefix_tokens,
            session=None if session == _NONE else session,
            turn=None if turn == _NONE else turn,
            group=None if group == _NONE else self._groups[group],
            lora=None if lora == _NONE else self._loras[lora],
        )


class Calls(PlannedCalls):
    """Random access to written calls; the bytes stay in the page cache, not on our heap."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._file = (folder / "calls.bin").open("rb")
        self._bytes = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)

    def __getitem__(self, index: int) -> Call:
        row = (index - self.first) * _ROW.size
        offset, size, due_s = _ROW.unpack_from(self._rows, row)[:3]
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
