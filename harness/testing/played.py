"""Plays a load through the real load process and gives back its journal."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.load.calls import http_bytes, write_calls
from harness.load.driver import LoadProcess
from harness.load.job import LevelJob, LoadJob
from harness.load.journal import Entry, Kind, json_payload, read_entries
from harness.types import HttpCall


class Played(NamedTuple):
    """The journal of one load, its zero on the monotonic clock, and what the child reported."""

    entries: tuple[Entry, ...]
    zero_s: float
    events: tuple[Mapping[str, Any], ...]
    folder: Path

    def of(self, kind: Kind, request: int | None = None) -> list[Entry]:
        """The entries of a kind, of one request or of all, in order."""
        return [e for e in self.entries if e.kind == kind and request in (None, e.request)]

    def reason(self, request: int) -> str:
        """Why a request ended."""
        (end,) = self.of(Kind.END, request)
        return end.payload.decode()

    def body(self, request: int) -> bytes:
        """All bytes that were read for a request, framing included."""
        kinds = (Kind.READ, Kind.READ_USER)
        return b"".join(e.payload for e in self.entries if e.kind in kinds and e.request == request)

    def level(self, number: int = 0) -> Mapping[str, Any]:
        """What the child wrote about a level, with `end_s`."""
        (entry,) = [e for e in self.of(Kind.LEVEL) if int(e.extra) == number]
        return {**json_payload(entry), "end_s": entry.t_s}


def write_job(
    folder: Path,
    port: int,
    paths: Sequence[str],
    levels: Sequence[LevelJob],
    *,
    due_s: Sequence[float | None] = (),
    bodies: Mapping[str, bytes] | None = None,
    **settings: float,
) -> LoadJob:
    """Write one POST per path into `folder`; `settings` are fields of LoadJob (short time-outs).

    `bodies`: what is posted to a path; `{}` where none is given.
    """
    calls: list[tuple[bytes, float | None]] = []
    for i, path in enumerate(paths):
        call = HttpCall(path=path, body=(bodies or {}).get(path, b"{}"))
        data = http_bytes(call, host=f"127.0.0.1:{port}", request_id=str(i))
        calls.append((data, due_s[i] if due_s else None))
    write_calls(folder, calls)
    values = {"request_timeout_s": 5.0, "drain_timeout_s": 5.0, "settle_s": 0.0, **settings}
    return LoadJob(
        zero_s=time.monotonic(),
        host="127.0.0.1",
        port=port,
        calls=str(folder),
        journal=str(folder / "journal.bin"),
        levels=tuple(levels),
        **values,
    )


def play_job(
    job: LoadJob,
    *,
    load: LoadProcess | None = None,
    should_abort: Callable[[], bool] = lambda: False,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Played:
    """Play a job in a load process of its own, or in the one given."""
    folder = Path(job.calls)
    events: list[Mapping[str, Any]] = []

    def note(event: Mapping[str, Any]) -> None:
        events.append(event)
        on_event(event)

    with load or LoadProcess() as process:
        process.play(job, folder / "job.json", on_event=note, should_abort=should_abort)
    return read_played(job, events)


def read_played(job: LoadJob, events: Sequence[Mapping[str, Any]] = ()) -> Played:
    """The journal of a job that has been played, or that was broken off."""
    entries = tuple(read_entries(Path(job.journal)))
    return Played(entries, job.zero_s, tuple(events), Path(job.calls))
