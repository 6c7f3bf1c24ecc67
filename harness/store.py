"""The store: one folder a run, plain Parquet and JSON, versioned, never overwritten.

`<store>/<sweep>/<run>/`: `run.json`, `requests.parquet`, `engine.parquet`, `host.parquet`,
`engine.log`, `raw/`. A run is written into a hidden sibling folder and moved into place whole;
`run.json` carries `ended_at` only when everything else is on disk. This is the wall: it
imports neither engines nor load on its left nor pandas on its right.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import ConfigError, StoreFormatError, StoreWriteError
from harness.store_format import (
    ADDED,
    ENGINE_SCHEMA,
    HOST_SCHEMA,
    RECORD_SCHEMA,
    SCHEMA_VERSION,
)
from harness.types import Doubt, EngineSample, HostSample, Record, RunInfo, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A finished run in the store."""

    folder: Path
    info: RunInfo

    def requests(self) -> pa.Table:
        """One row a request, columns as the fields of `Record`."""
        return self._table("requests", RECORD_SCHEMA)

    def engine_samples(self) -> pa.Table:
        """One row a scrape, columns as the fields of `EngineSample`."""
        return self._table("engine", ENGINE_SCHEMA)

    def host_samples(self) -> pa.Table:
        """One row a sample, columns as the fields of `HostSample`."""
        return self._table("host", HOST_SCHEMA)

    def _table(self, name: str, schema: pa.Schema) -> pa.Table:
        mine = self.info.schema_version
        later = frozenset().union(*(names for since, names in ADDED.items() if since > mine))
        return _read_table(self.folder / f"{name}.parquet", schema, later)


def _read_table(path: Path, schema: pa.Schema, later: frozenset[str]) -> pa.Table:
    """A table with all columns of `schema`; of `later` ones that it lacks, with nulls."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreFormatError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}); the run is damaged: "
            "move its folder away and measure it again"
        ) from error
    missing = [name for name in schema.names if name not in table.column_names]
    for name in later.intersection(missing):
        nulls = pa.nulls(len(table), schema.field(name).type)
        table = table.append_column(schema.field(name), nulls)
    missing = [name for name in missing if name not in later]
    if missing:
        raise StoreFormatError(f"{path}: lacks the columns {missing}; the run is damaged")
    return table.select(schema.names)


def _to_table(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
    return pa.table(columns, schema=schema)


def new_run_folder(sweep: Path, run_id: str) -> Path:
    """Make a hidden folder to write a run into; `finish_run` moves it into place."""
    folder = sweep / f".{run_id}.part"
    try:
        if folder.exists():
            shutil.rmtree(folder)
        (folder / "raw").mkdir(parents=True)
    except OSError as error:
        raise StoreWriteError(f"{folder}: cannot be made: {error.strerror or error}") from error
    return folder


def write_tables(
    folder: Path,
    *,
    records: Sequence[Record],
    engine: Sequence[EngineSample],
    host: Sequence[HostSample],
) -> None:
    """Write the three tables of a run; StoreWriteError if the disk refuses."""
    try:
        for name, rows, schema in (
            ("requests", records, RECORD_SCHEMA),
            ("engine", engine, ENGINE_SCHEMA),
            ("host", host, HOST_SCHEMA),
        ):
            table = _to_table(rows, schema)
            pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
    except OSError as error:
        raise StoreWriteError(f"{folder}: cannot be written: {error.strerror or error}") from error


def write_info(folder: Path, info: RunInfo) -> None:
    """Write `run.json` atomically."""
    text = msgspec.json.format(msgspec.json.encode(info), indent=2)
    _write_atomically(folder / "run.json", text + b"\n")


def _write_atomically(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise StoreWriteError(f"{path}: cannot be written: {error.strerror or error}") from error


def finish_run(folder: Path, info: RunInfo) -> Path:
    """Write `run.json` and move the hidden folder to its name; returns the final folder.

    A name that is taken gets `-2`, `-3`, ...: results are never overwritten.
    """
    final = folder.with_name(info.run_id)
    attempt = 1
    while final.exists():
        attempt += 1
        final = folder.with_name(f"{info.run_id}-{attempt}")
    write_info(folder, replace(info, run_id=final.name))
    try:
        folder.rename(final)
    except OSError as error:
        raise StoreWriteError(f"{final}: cannot be written: {error.strerror or error}") from error
    return final


def write_plan(sweep: Path, plan_hash: str, plan: Mapping[str, Any]) -> None:
    """Keep a plan once per sweep, named by its hash."""
    path = sweep / "plans" / f"{plan_hash}.json"
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreWriteError(f"{path}: cannot be written: {error.strerror or error}") from error
    _write_atomically(path, msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")


def read_run(folder: Path) -> StoredRun:
    """Read a run folder; StoreFormatError if it is damaged or newer than this version."""
    path = folder / "run.json"
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StoreFormatError(f"{folder}: not a run folder: {error.strerror}: {path}") from error
    try:
        version = msgspec.json.decode(raw).get("schema_version")
    except (msgspec.DecodeError, AttributeError) as error:
        raise StoreFormatError(
            f"{path}: not valid JSON ({error}); the run is damaged: move its folder away, "
            "it will be measured again"
        ) from error
    if not isinstance(version, int) or version < 1:
        raise StoreFormatError(f"{path}: schema_version={version!r}: not a run of bakeoff")
    if version > SCHEMA_VERSION:
        raise StoreFormatError(
            f"{path}: schema_version={version}, this bakeoff reads up to {SCHEMA_VERSION}; "
            "update bakeoff to read it"
        )
    try:
        info = msgspec.json.decode(raw, type=RunInfo)
    except msgspec.DecodeError as error:
        raise StoreFormatError(f"{path}: {error}; the run is damaged") from error
    return StoredRun(folder=folder, info=info)


def run_folders(root: Path) -> Iterator[Path]:
    """Every folder at or below `root` that holds a run.json, hidden ones left out, sorted."""
    for path in sorted(root.rglob("run.json")):
        if not any(part.startswith(".") for part in path.relative_to(root).parts):
            yield path.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What opening a path found: the runs, and a doubt for each folder that cannot be read."""

    runs: tuple[StoredRun, ...]
    doubts: tuple[Doubt, ...]


def open_runs(root: Path, *, strict: bool = True) -> Opened:
    """All runs at or below a run, sweep or store folder.

    strict: the first damaged or newer folder raises StoreFormatError; else it becomes a doubt
    and the others are read. ConfigError if there is no run at all.
    """
    if not root.exists():
        raise ConfigError(f"{root}: no such folder; give a run, a sweep or a store folder")
    runs: list[StoredRun] = []
    doubts: list[Doubt] = []
    for folder in run_folders(root):
        try:
            runs.append(read_run(folder))
        except StoreFormatError as error:
            if strict:
                raise
            advice = "move the folder away; the run will be measured again"
            doubts.append(
                Doubt(
                    code="damaged_run",
                    what=str(error),
                    advice=advice,
                    severity=Severity.WARN,
                    where=folder.name,
                )
            )
    if not runs and not doubts:
        raise ConfigError(f"{root}: holds no run; measure one with: bakeoff run store={root}")
    return Opened(runs=tuple(runs), doubts=tuple(doubts))
