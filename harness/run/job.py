"""The one orchestrator: start the engine, play the levels, decode, judge, store. One job, one run.

Whatever happens after the start becomes a stored outcome: a server that does not get ready or
dies, an interrupt, a load that is not valid. Only a store that refuses to be written is raised.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.adapter import ServeContext
from harness.config import LaunchMode
from harness.engine.lock import machine_lock
from harness.engine.ports import choose_port
from harness.engine.process import EngineProcess
from harness.engine.ready import Readiness, wait_ready
from harness.engine.telemetry import Telemetry
from harness.errors import (
    BakeoffError,
    EngineDiedError,
    InterruptedRunError,
    InvalidRunError,
    NotReadyError,
    StoreWriteError,
)
from harness.load.decode import Decoded, JournalDecoder
from harness.load.driver import LoadProcess
from harness.run.identity import plain_config, run_id
from harness.run.interrupt import held_back
from harness.run.load_job import PreparedLoad, prepare_load
from harness.run.preflight import Prepared
from harness.store import SCHEMA_VERSION, finish_run, new_run_folder, write_plan, write_tables
from harness.types import (
    Doubt,
    EngineIdentity,
    EngineSample,
    HostSample,
    Outcome,
    RunInfo,
    Severity,
)

_LOCK_WAIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How a job ended; `exit_code` as in errors.py."""

    run_id: str
    label: str
    folder: Path
    outcome: Outcome
    exit_code: int
    message: str = ""


@dataclass(slots=True, kw_only=True)
class _Measured:
    """What a job has gathered so far, good or not."""

    readiness: Readiness | None = None
    decoded: Decoded | None = None
    engine: list[EngineSample] | None = None
    host: list[HostSample] | None = None
    failure: BakeoffError | None = None


def measure(prepared: Prepared, sweep: Path, progress: Callable[[str], None]) -> JobResult:
    """Measure one job and store it, whatever comes of it; returns how it ended."""
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    conf = prepared.conf
    write_plan(sweep, prepared.plan.plan_hash, prepared.plan.describe())
    folder = new_run_folder(sweep, run_id(conf, prepared.content_hash))
    measured = _Measured()
    try:
        with machine_lock(
            f"a run of {conf.engine.name}", wait_s=_LOCK_WAIT_S, progress=progress
        ) as lock:
            _start_and_play(prepared, folder, measured, lock, progress)
    except StoreWriteError:
        raise
    except BakeoffError as error:
        measured.failure = error
    except KeyboardInterrupt:
        measured.failure = InterruptedRunError("interrupted; what was measured is kept")
    with held_back():
        return _store(prepared, folder, measured, started_at)


def _start_and_play(
    prepared: Prepared,
    folder: Path,
    measured: _Measured,
    lock: int,
    progress: Callable[[str], None],
) -> None:
    conf = prepared.conf
    with ExitStack() as stack:
        load = stack.enter_context(LoadProcess())  # its imports take a second: beside the engine's
        process, base_url = None, conf.launch.base_url or ""
        if conf.launch.mode is LaunchMode.PROCESS:
            process, base_url = stack.enter_context(_engine(prepared, folder, lock))
        progress(f"{conf.engine.name}: starting")
        measured.readiness = wait_ready(
            process, prepared.adapter, base_url, timeout_s=conf.engine.ready_timeout_s
        )
        loaded = prepare_load(
            conf,
            prepared.plan,
            prepared.tokenizer,
            prepared.adapter,
            base_url=base_url,
            folder=folder / "raw",
        )
        _play(prepared, loaded, measured, load, process, base_url, progress)


def spare_threads() -> int:
    """CPU threads for an engine: all cores that we may use but one, which the client needs."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


@contextmanager
def _engine(prepared: Prepared, folder: Path, lock: int) -> Iterator[tuple[EngineProcess, str]]:
    conf = prepared.conf
    context = ServeContext(
        port=choose_port(conf.launch.port),
        python=prepared.environment.python if prepared.environment else None,
        model_path=prepared.model_path,
        threads=conf.engine.threads or spare_threads(),
    )
    spec = prepared.adapter.serve(conf.engine, conf.model, context)
    with EngineProcess(
        conf.engine.name,
        spec.argv,
        {**spec.env, **conf.engine.env},
        log_path=folder / "engine.log",
        stop_timeout_s=spec.stop_timeout_s,
        keep_fds=(lock,),
    ) as process:
        yield process, spec.base_url


def _play(
    prepared: Prepared,
    loaded: PreparedLoad,
    measured: _Measured,
    load: LoadProcess,
    process: EngineProcess | None,
    base_url: str,
    progress: Callable[[str], None],
) -> None:
    telemetry = Telemetry(prepared.adapter, base_url, process, zero_s=loaded.job.zero_s)
    telemetry.watch_client(load.pid)
    journal = Path(loaded.job.journal)
    telemetry.start()
    try:
        load.play(
            loaded.job,
            journal.with_name("job.json"),
            on_event=lambda event: _tell(event, progress),
            should_abort=lambda: process is not None and process.poll() is not None,
        )
    finally:
        measured.engine, measured.host = telemetry.stop()
        if journal.exists():
            measured.decoded = _decode(prepared, loaded, journal)
        for name in ("calls.bin", "calls.idx", "job.json"):  # the plan makes them again
            journal.with_name(name).unlink(missing_ok=True)
    status = process.poll() if process else None
    if process is not None and status is not None:
        raise process.died_error(status, zero_s=loaded.job.zero_s)


def _tell(event: Mapping[str, Any], progress: Callable[[str], None]) -> None:
    if event.get("event") == "level":
        progress(str(event["name"]))


def _decode(prepared: Prepared, loaded: PreparedLoad, journal: Path) -> Decoded:
    tokenizer = prepared.tokenizer
    decoder = JournalDecoder(
        adapter=prepared.adapter,
        block=prepared.conf.block,
        planned=loaded.planned,
        levels=loaded.levels,
        count_tokens=tokenizer.count if tokenizer.exact else None,
    )
    return decoder.decode(journal)


def _store(prepared: Prepared, folder: Path, measured: _Measured, started_at: str) -> JobResult:
    decoded = measured.decoded
    info = _info(prepared, measured, started_at)
    records = decoded.records if decoded else ()
    write_tables(folder, records=records, engine=measured.engine or [], host=measured.host or [])
    doubts = _doubts(info, folder)
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
    final = finish_run(folder, info)
    return JobResult(
        run_id=final.name,
        label=_label(prepared),
        folder=final,
        outcome=info.outcome,
        exit_code=failure.exit_code if failure else 0,
        message=_message(failure, folder, final) if failure else "",
    )


def _message(failure: BakeoffError, written: Path, final: Path) -> str:
    """The failure with the log's path in the run's final folder, not in the hidden one."""
    return str(failure).replace(str(written / "engine.log"), str(final / "engine.log"))


def _info(prepared: Prepared, measured: _Measured, started_at: str) -> RunInfo:
    conf, ready, decoded = prepared.conf, measured.readiness, measured.decoded
    return RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id=run_id(conf, prepared.content_hash),
        engine=conf.engine.name,
        model=conf.model.name,
        emulated=False,
        outcome=Outcome.OK,
        started_at=started_at,
        config=plain_config(conf),
        facts=prepared.facts,
        plan_hash=prepared.plan.plan_hash,
        content_hash=prepared.content_hash,
        block=conf.block,
        levels=decoded.levels if decoded else (),
        identity=ready.identity if ready else EngineIdentity(),
        capabilities=prepared.adapter.capabilities,
        time_to_ready_s=ready.time_to_ready_s if ready else None,
    )


def _doubts(info: RunInfo, folder: Path) -> tuple[Doubt, ...]:
    from harness.analysis.validity import run_doubts  # noqa: PLC0415 - pandas, after the load
    from harness.store import StoredRun  # noqa: PLC0415

    return tuple(run_doubts(StoredRun(folder=folder, info=info)))


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


def _label(prepared: Prepared) -> str:
    conf = prepared.conf
    return f"{conf.engine.name} {conf.scenario.name} block {conf.block}"
