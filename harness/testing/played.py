"""Plays a load through the real load process and gives back its journal."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness.load.calls import Planned, PlannedCall, http_bytes, write_calls
from harness.load.driver import LoadProcess
from harness.load.job import Lane, LevelJob, LevelsJob, LoadJob, Target
from harness.load.journal import Entry, Kind, json_payload, read_entries
from harness.types import HttpCall, Request


class WrittenLoad(NamedTuple):
    """A load ready to be played: its job and its levels, with the calls in `levels.calls`."""

    job: LoadJob
    levels: LevelsJob

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(self.levels.calls)

    @property
    def journal(self) -> str:
        """Where it is written to while it is played."""
        return self.job.journal


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


def closed(name: str, first: int, count: int, users: int, **settings: Any) -> LevelJob:
    """A closed level of one lane; `settings` are fields of LevelJob."""
    lane = Lane(first=first, count=count, users=users)
    return LevelJob(
        **{"number": 0, "name": name, "first": first, "count": count, "lanes": (lane,), **settings}
    )


def write_job(
    folder: Path,
    port: int,
    paths: Sequence[str],
    levels: Sequence[LevelJob],
    *,
    due_s: Sequence[float | None] = (),
    bodies: Mapping[str, bytes] | None = None,
    **settings: Any,
) -> WrittenLoad:
    """Write one POST per path into `folder`; levels get their numbers by their order.

    `bodies`: what is posted to a path; `{}` where none is given. `settings`: fields of LoadJob
    (time-outs are short).
    """

    def calls() -> Iterator[PlannedCall]:
        for i, path in enumerate(paths):
            call = HttpCall(path=path, body=(bodies or {}).get(path, b"{}"))
            data = http_bytes(call, host=f"127.0.0.1:{port}", request_id=str(i))
            planned = Planned(input_tokens=4, output_tokens=8)
            yield PlannedCall(data, due_s[i] if due_s else None, planned)

    write_calls(folder, calls())
    return _written(folder, port, levels, settings)


def write_sessions(
    folder: Path,
    port: int,
    requests: Sequence[Request],
    levels: Sequence[LevelJob],
    **settings: Any,
) -> WrittenLoad:
    """Write the turns of sessions into `folder`, as requests that are encoded when they are due."""

    def calls() -> Iterator[PlannedCall]:
        for request in requests:
            planned = Planned(
                input_tokens=request.input_tokens,
                output_tokens=request.max_output_tokens,
                session=request.session,
                turn=request.turn,
            )
            yield PlannedCall(msgspec.json.encode(request), request.due_s, planned)

    write_calls(folder, calls())
    return _written(folder, port, levels, settings)


def _written(
    folder: Path, port: int, levels: Sequence[LevelJob], settings: Mapping[str, Any]
) -> WrittenLoad:
    numbered = tuple(replace(level, number=number) for number, level in enumerate(levels))
    values = {"request_timeout_s": 5.0, "drain_timeout_s": 5.0, "settle_s": 0.0, **settings}
    job = LoadJob(
        **{
            "zero_s": time.monotonic(),
            "target": Target(host="127.0.0.1", port=port),
            "journal": str(folder / "journal.bin"),
            **values,
        }
    )
    return WrittenLoad(job, LevelsJob(calls=str(folder), levels=numbered))


def play_job(
    written: WrittenLoad,
    *,
    load: LoadProcess | None = None,
    should_abort: Callable[[], bool] = lambda: False,
    should_stop: Callable[[], bool] | None = None,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Played:
    """Play a load in a load process of its own, or in the one given."""
    events: list[Mapping[str, Any]] = []

    def note(event: Mapping[str, Any]) -> None:
        events.append(event)
        on_event(event)

    with load or LoadProcess() as process:
        process.open(written.job, written.folder / "job.json")
        process.play(
            written.levels,
            written.folder / "levels.json",
            on_event=note,
            should_abort=should_abort,
            should_stop=should_stop,
        )
        process.close()
    return read_played(written, events)


def read_played(written: WrittenLoad, events: Sequence[Mapping[str, Any]] = ()) -> Played:
    """The journal of a load that has been played, or that was broken off."""
    entries = tuple(read_entries(Path(written.job.journal)))
    return Played(entries, written.job.zero_s, tuple(events), written.folder)
