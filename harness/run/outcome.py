"""From what a job has gathered to a stored run: its `run.json`, its doubts, and how it ended."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from harness.analysis.validity import run_doubts
from harness.config import LaunchMode, RunConf
from harness.engine.ready import Readiness
from harness.errors import (
    BakeoffError,
    EngineDiedError,
    InterruptedRunError,
    InvalidRunError,
    NotReadyError,
)
from harness.load.decode import Decoded
from harness.load.wire.secrets import masked, masked_text, scrub_folder
from harness.run.identity import plain_config, run_id
from harness.run.preflight import Prepared
from harness.store import StoredRun, finish_run, write_tables
from harness.store_format import SCHEMA_VERSION
from harness.types import (
    Determinism,
    Doubt,
    EngineIdentity,
    EngineSample,
    HostSample,
    LogFacts,
    Outcome,
    Record,
    RunInfo,
    SearchResult,
    Severity,
    StartTimes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How a job ended; `exit_code` as in errors.py, `label`: what the sweep calls the job."""

    run_id: str
    folder: Path
    outcome: Outcome
    exit_code: int
    message: str = ""
    label: str = ""


@dataclass(slots=True, kw_only=True)
class Measured:
    """What a job has gathered so far, good or not.

    `doubts`: those that its tables cannot show. `telemetry`: what the sampling itself cost.
    """

    readiness: Readiness | None = None
    decoded: Decoded | None = None
    engine: list[EngineSample] | None = None
    host: list[HostSample] | None = None
    search: SearchResult | None = None
    determinism: Determinism | None = None
    doubts: list[Doubt] = field(default_factory=list)
    telemetry: dict[str, Any] = field(default_factory=dict)
    failure: BakeoffError | None = None


def store_job(prepared: Prepared, folder: Path, measured: Measured, started_at: str) -> JobResult:
    """Write what was gathered into `folder`, move it into place; StoreWriteError if it cannot.

    The server's key, which some servers repeat, stands in nothing that is written or said.
    """
    decoded, key = measured.decoded, prepared.api_key
    info = _info(prepared, measured, started_at)
    records = [_masked(record, key) for record in decoded.records] if decoded else []
    write_tables(folder, records=records, engine=measured.engine or [], host=measured.host or [])
    doubts = (*measured.doubts, *run_doubts(StoredRun(folder=folder, info=info)))
    failure = measured.failure
    if failure is None:
        failure = _invalid(doubts)
    info = replace(
        info,
        doubts=doubts,
        outcome=_outcome(failure),
        diagnosis=_message(failure, folder, Path()) if failure else None,
        ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    info = msgspec.json.decode(masked(msgspec.json.encode(info), key.encode()), type=RunInfo)
    scrub_folder(folder, [key])
    final = finish_run(folder, info)
    return JobResult(
        run_id=final.name,
        folder=final,
        outcome=info.outcome,
        exit_code=failure.exit_code if failure else 0,
        message=masked_text(_message(failure, folder, final), key) if failure else "",
    )


def _masked(record: Record, key: str) -> Record:
    said = record.error_message
    return replace(record, error_message=masked_text(said, key)) if said and key else record


def _message(failure: BakeoffError, written: Path, final: Path) -> str:
    """The failure with the log's path in the run's final folder, not in the hidden one."""
    return str(failure).replace(str(written / "engine.log"), str(final / "engine.log"))


def _info(prepared: Prepared, measured: Measured, started_at: str) -> RunInfo:
    conf, ready, decoded = prepared.conf, measured.readiness, measured.decoded
    return RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id=run_id(conf, prepared.content_hash),
        engine=conf.engine.name,
        model=conf.model.name,
        emulated=_is_emulated(conf, ready),
        outcome=Outcome.OK,
        started_at=started_at,
        config=plain_config(conf),
        facts={**prepared.facts, "telemetry": measured.telemetry},
        plan_hash=prepared.plan.plan_hash,
        content_hash=prepared.content_hash,
        block=conf.block,
        levels=decoded.levels if decoded else (),
        identity=ready.identity if ready else EngineIdentity(),
        capabilities=prepared.adapter.capabilities,
        time_to_ready_s=ready.time_to_ready_s if ready else None,
        start=_start(prepared, ready),
        log=ready.log if ready else LogFacts(),
        determinism=measured.determinism,
        search=measured.search,
    )


def _start(prepared: Prepared, ready: Readiness | None) -> StartTimes:
    environment = prepared.environment
    install_s = environment.install_s if environment else None
    return replace(ready.start if ready else StartTimes(), install_s=install_s)


def _is_emulated(conf: RunConf, ready: Readiness | None) -> bool:
    """Played by us, or by a server that says that it is an emulator."""
    return conf.launch.mode is LaunchMode.EMULATE or bool(ready and ready.identity.is_emulated)


def _invalid(doubts: tuple[Doubt, ...]) -> InvalidRunError | None:
    reasons = [doubt.what for doubt in doubts if doubt.severity is Severity.INVALID]
    return InvalidRunError("; ".join(reasons)) if reasons else None


def _outcome(failure: BakeoffError | None) -> Outcome:
    kinds = (
        (NotReadyError, Outcome.NOT_READY),
        (EngineDiedError, Outcome.DIED),
        (InterruptedRunError, Outcome.INTERRUPTED),
        (InvalidRunError, Outcome.INVALID),
    )
    if failure is None:
        return Outcome.OK
    return next((outcome for kind, outcome in kinds if isinstance(failure, kind)), Outcome.FAILED)
