"""The one orchestrator: start the engine, play the levels, decode, judge, store. One job, one run.

Whatever happens after the start becomes a stored outcome: a server that does not get ready or
dies, an interrupt, a load that is not valid. Only a store that refuses to be written is raised.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from harness.config import LaunchMode
from harness.engine.lock import machine_lock
from harness.engine.ports import choose_port
from harness.engine.probe import Endpoint
from harness.engine.process import EngineProcess
from harness.engine.ready import wait_ready
from harness.engine.release import RELEASED
from harness.errors import BakeoffError, InterruptedRunError, StoreWriteError
from harness.load.driver import LoadProcess
from harness.plan.warmup import warmup_requests
from harness.run.determinism import ask_again_and_again
from harness.run.identity import run_id
from harness.run.interrupt import held_back
from harness.run.load_calls import warmup_size
from harness.run.outcome import JobResult, Measured, store_job
from harness.run.playing import Playing
from harness.run.preflight import Prepared
from harness.run.raw import settle_raw
from harness.run.serving import serving
from harness.run.starting import started
from harness.store import new_run_folder, write_plan
from harness.types import Determinism

_LOCK_WAIT_S = 600.0


def measure(prepared: Prepared, sweep: Path, progress: Callable[[str], None]) -> JobResult:
    """Measure one job and store it, whatever comes of it; returns how it ended."""
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    conf = prepared.conf
    write_plan(sweep, prepared.plan.plan_hash, prepared.plan.describe())
    folder = new_run_folder(sweep, run_id(conf, prepared.content_hash))
    measured = Measured()
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
        result = store_job(prepared, folder, measured, started_at)
        if measured.decoded is not None:
            settle_raw(result.folder / "raw", conf.raw)
        return result


def _start_and_play(
    prepared: Prepared,
    folder: Path,
    measured: Measured,
    lock: int,
    progress: Callable[[str], None],
) -> None:
    conf = prepared.conf
    if conf.launch.mode is not LaunchMode.ATTACH:
        measured.doubts += RELEASED.doubts()
    with ExitStack() as stack:
        load = stack.enter_context(LoadProcess())  # its imports take a second: beside the engine's
        process, base_url = None, conf.launch.base_url or ""
        if conf.launch.mode is not LaunchMode.ATTACH:
            process, base_url = stack.enter_context(_engine(prepared, folder, lock, progress))
        progress("  starting" if process else "  waiting for an answer")
        endpoint = Endpoint(base_url, api_key=prepared.api_key, tls_verify=conf.launch.tls_verify)
        measured.readiness = wait_ready(
            process, prepared.adapter, endpoint, timeout_s=conf.engine.ready_timeout_s
        )
        measured.determinism = _determinism(prepared, endpoint, progress)
        playing = Playing(
            prepared=prepared,
            endpoint=endpoint,
            process=process,
            load=load,
            folder=folder / "raw",
            progress=progress,
        )
        playing.play(measured)


def _determinism(
    prepared: Prepared, endpoint: Endpoint, progress: Callable[[str], None]
) -> Determinism | None:
    """How many texts one request of the plan's kind has, where that is to be asked."""
    conf, count = prepared.conf, prepared.conf.probe.determinism_requests
    if not count:
        return None
    progress(f"  one request {count} times alone and {count} times at once")
    own = warmup_size(conf)[1] + 1  # the one after those that warm up
    *_, request = warmup_requests(conf, prepared.tokenizer, own, first_index=prepared.plan.count)
    return ask_again_and_again(prepared.adapter, endpoint, request, count)


@contextmanager
def _engine(
    prepared: Prepared, folder: Path, lock: int, progress: Callable[[str], None]
) -> Iterator[tuple[EngineProcess, str]]:
    conf = prepared.conf
    how = serving(
        conf,
        prepared.adapter,
        port=choose_port(conf.launch.port),
        python=prepared.environment.python if prepared.environment else None,
        model_path=prepared.model_path,
        folder=folder / "engine",
        gpu_count=len(prepared.facts["machine"]["gpus"]),
    )
    log_path = folder / "engine.log"
    with started(how, conf.engine.name, log_path=log_path, lock=lock, progress=progress) as process:
        yield process, how.base_url
