"""Hand-made records and stored runs, for tests of everything behind the store."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.store import StoredRun, open_runs, read_run, write_info, write_tables
from harness.store_format import SCHEMA_VERSION
from harness.types import (
    Clock,
    EngineSample,
    HostSample,
    Level,
    Outcome,
    Phase,
    Record,
    RunInfo,
    TokensSource,
)


def make_record(index: int = 0, **changes: Any) -> Record:
    """An ok request due at 0 s whose two tokens came at 0.5 and 0.6 s; `changes`: its fields."""
    values: dict[str, Any] = {
        "request_id": str(index),
        "index": index,
        "level": 0,
        "block": 0,
        "phase": Phase.MEASURE,
        "due_s": 0.0,
        "connect_s": None,
        "sent_s": changes.get("due_s", 0.0),
        "chunk_s": (0.5, 0.6),
        "chunk_tokens": (None,) * len(changes.get("chunk_s", (0, 0))),
        "stream_end_s": None,
        "prompt_tokens": 10,
        "output_tokens": 2,
        "tokens_source": TokensSource.USAGE,
        "planned_input_tokens": 10,
        "planned_output_tokens": changes.get("output_tokens", 2),
        "clock": Clock.KERNEL,
    }
    return Record(**{**values, **changes})


def make_config(engine_name: str = "alpha", **groups: Mapping[str, Any]) -> dict[str, Any]:
    """A run's configuration as `run.json` holds it, cut to what readers look at."""
    config: dict[str, Any] = {
        "engine": {"name": engine_name, "route": "completions", "max_running": 8, "threads": None},
        "model": {"name": "tiny"},
        "scenario": {"name": "chat", "input_tokens": 10, "output_tokens": 2, "languages": ["en"]},
        "load": {"shape": "users", "users": 1},
        "slo": {"name": "none"},
        "hardware": {"name": "auto", "price": {"per_hour": None}},
        "launch": {"mode": "process", "base_url": None},
        "warmup": {"mode": "steady"},
        "validity": {"max_error_ratio": 0.01, "max_lag_s": 0.005},
        "block": 0,
    }
    for name, group in groups.items():
        config[name] = {**config.get(name, {}), **group}
    return config


def make_info(
    engine: str = "alpha",
    *,
    block: int = 0,
    config: Mapping[str, Any] | None = None,
    **changes: Any,
) -> RunInfo:
    """A finished run of one closed level with a window of 0 to 10 s."""
    values: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": f"{engine}-b{block}",
        "engine": engine,
        "model": "tiny",
        "emulated": False,
        "outcome": Outcome.OK,
        "started_at": "2026-11-30T10:00:00+00:00",
        "config": config if config is not None else make_config(engine),
        "facts": {
            "machine": {"cpu_model": "Test CPU", "cores_allowed": [0, 1], "gpus": []},
            "model": {"sha256": "m" * 64},
        },
        "plan_hash": "p" * 64,
        "content_hash": f"{engine}-{block}",
        "block": block,
        "levels": (Level(index=0, name="users=1", shape="users", users=1, window_end_s=10.0),),
        "ended_at": "2026-11-30T10:01:00+00:00",
    }
    return RunInfo(**{**values, **changes})


def store_run(
    sweep: Path,
    info: RunInfo,
    records: Sequence[Record],
    *,
    engine: Sequence[EngineSample] = (),
    host: Sequence[HostSample] = (),
) -> StoredRun:
    """Write a run below `sweep`, in a folder named by its id, and read it again."""
    folder = sweep / info.run_id
    folder.mkdir(parents=True)
    write_tables(folder, records=records, engine=engine, host=host)
    write_info(folder, info)
    return read_run(folder)


def only_run(folder: Path) -> StoredRun:
    """The one run in a store, written to its end."""
    (run,) = open_runs(folder).runs
    assert run.info.ended_at is not None
    return run


def measured(run: StoredRun) -> list[dict[str, Any]]:
    """The rows of its requests that were measured, in their order."""
    rows: list[dict[str, Any]] = run.requests().to_pylist()
    return [row for row in rows if row["phase"] == Phase.MEASURE.value]
