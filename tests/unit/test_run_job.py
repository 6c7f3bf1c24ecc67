"""One job from its start to the store: against a scripted server, and with loads that fail."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from harness.config import (
    EngineConf,
    LaunchConf,
    LaunchMode,
    LoadConf,
    ModelConf,
    RunConf,
    ScenarioConf,
)
from harness.engine.lock import machine_lock
from harness.errors import BakeoffError, StoreWriteError
from harness.load.job import LevelsJob, LoadJob
from harness.load.journal import Kind, read_entries
from harness.run import job as job_module
from harness.run.job import measure
from harness.run.outcome import JobResult
from harness.run.preflight import prepare
from harness.store import StoredRun, open_runs
from harness.testing.scripted import Script, ScriptedServer
from harness.types import Doubt, Outcome

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}"


def event(text: str) -> bytes:
    data = b"data: " + text.encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


ANSWER = (
    STREAM,
    0.01,
    event('{"choices":[{"text":"a"}]}'),
    0.01,
    event('{"choices":[{"text":"b","finish_reason":"length"}]}'),
    event('{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2}}'),
    event("[DONE]") + b"0\r\n\r\n",
)


class GoodForThree(dict[str, Script]):
    """Scripts of a server that is ready, plays the warm-up of two, and is busy from then on."""

    _left = 3

    def get(self, path: str, default: Any = None) -> Any:
        if path != "/v1/completions":
            return default
        self._left -= 1
        return ANSWER if self._left >= 0 else (BUSY,)


class FailingLoad:
    """In place of the load process; `play` leaves a journal that was begun, and raises."""

    error: BaseException = BakeoffError("the load process ended with -9: it said nothing")
    pid = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def open(self, job: LoadJob, path: Path) -> None:
        assert path.parent.is_dir()
        Path(job.journal).write_bytes(b"bakeoff jour")

    def play(self, levels: LevelsJob, path: Path, **_: Callable[..., Any]) -> None:
        assert (levels.levels[0].is_warmup, path.parent.is_dir()) == (True, True)
        raise self.error


@pytest.fixture(autouse=True)
def _own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = partial(machine_lock, path=tmp_path / "lock")
    monkeypatch.setattr(job_module, "machine_lock", lock)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer({"/v1/completions": ANSWER}) as running:
        yield running


def conf_of(port: int, store: Path, **changes: Any) -> RunConf:
    conf = RunConf(
        engine=EngineConf(name="openai", max_running=2, ready_timeout_s=0.5),
        model=ModelConf(name="tiny"),
        scenario=ScenarioConf(name="fixed", input_tokens=10, output_tokens=2),
        load=LoadConf(users=2, requests=6, settle_s=0.0, drain_timeout_s=5.0),
        launch=LaunchConf(mode=LaunchMode.ATTACH, base_url=f"http://127.0.0.1:{port}"),
        store=str(store),
        name="sweep",
        block=1,
    )
    return replace(conf, **changes)


def measured(conf: RunConf, said: list[str] | None = None) -> tuple[JobResult, StoredRun]:
    progress = (said if said is not None else []).append
    result = measure(prepare(conf, lambda _: None), Path(conf.store) / conf.name, progress)
    (run,) = open_runs(Path(conf.store)).runs
    assert run.folder == result.folder
    return result, run


def test_a_good_job_is_stored_with_all_that_it_measured(
    tmp_path: Path, server: ScriptedServer
) -> None:
    said: list[str] = []
    conf = conf_of(server.port, tmp_path / "results")
    result, run = measured(conf, said)
    assert (result.exit_code, result.outcome, result.message) == (0, Outcome.OK, "")
    assert said == ["  waiting for an answer", "  warm-up", "  users=2"]
    rows = run.requests().to_pylist()
    assert [row["phase"] for row in rows] == ["warmup"] * 2 + ["measure"] * 6
    assert [row["index"] for row in rows] == [6, 7, 0, 1, 2, 3, 4, 5]
    for row in rows:
        assert (row["error"], row["http_status"], row["block"]) == (None, 200, 1)
        assert (row["output_tokens"], row["tokens_source"]) == (2, "usage")
        assert row["due_s"] <= row["sent_s"] < row["chunk_s"][0] < row["chunk_s"][1]
        assert row["planned_output_tokens"] == 2
    info = run.info
    (level,) = info.levels
    assert (level.name, level.planned, level.exhausted) == ("users=2", 6, False)
    assert level.window_start_s < level.window_end_s <= level.drained_s
    assert (info.engine, info.model, info.emulated) == ("openai", "tiny", False)
    assert info.config["engine"]["max_running"] == 2
    assert info.ended_at is not None
    assert info.ended_at >= info.started_at
    assert info.time_to_ready_s is None
    assert info.capabilities is not None
    assert run.host_samples().num_rows >= 1
    telemetry = info.facts["telemetry"]
    assert telemetry["span_s"] > 0
    assert 0 < telemetry["cpu_ratio"] < 1
    assert telemetry["problems"] == []
    # what decodes it again, and no left-overs
    raw = result.folder / "raw"
    assert sorted(str(path.relative_to(raw)) for path in raw.rglob("*") if path.is_file()) == [
        "job.json",
        "journal.bin",
        *(
            f"{folder}/{name}"
            for folder in ("levels", "warm-up")
            for name in ("calls.idx", "calls.json", "levels.json")
        ),
    ]
    ends = [e for e in read_entries(result.folder / "raw" / "journal.bin") if e.kind == Kind.END]
    assert len(ends) == 8
    plan = tmp_path / "results" / "sweep" / "plans" / f"{run.info.plan_hash}.json"
    assert plan.is_file()
    hidden = [path.name for path in result.folder.parent.iterdir() if path.name.startswith(".")]
    assert hidden == []


def test_doubts_that_the_tables_cannot_show_are_stored(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine of ours cannot be started here; what was found before its start is kept."""
    left = Doubt(code="memory_left", what="1 GiB more", advice="free it")
    monkeypatch.setattr(job_module.RELEASED, "doubts", lambda: [left])
    attached = conf_of(server.port, tmp_path / "attached")
    _, run = measured(attached)
    assert left not in run.info.doubts  # nobody's engine was started
    prepared = prepare(conf_of(server.port, tmp_path / "own"), lambda _: None)
    own = replace(prepared.conf, launch=LaunchConf(mode=LaunchMode.EMULATE))
    monkeypatch.setattr(job_module, "LoadProcess", FailingLoad)
    job = measure(replace(prepared, conf=own), tmp_path / "own" / "sweep", lambda _: None)
    (stored,) = open_runs(job.folder).runs
    assert left in stored.info.doubts


def test_a_server_that_fails_every_request_is_an_invalid_run(tmp_path: Path) -> None:
    with ScriptedServer(GoodForThree()) as server:
        result, run = measured(conf_of(server.port, tmp_path / "results"))
    assert (result.exit_code, result.outcome) == (3, Outcome.INVALID)
    errors = [(row["phase"], row["error"]) for row in run.requests().to_pylist()]
    assert errors == [("warmup", None)] * 2 + [("measure", "http_5xx")] * 6
    assert run.info.diagnosis == result.message != ""


def test_a_server_that_is_not_there_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "LoadProcess", FailingLoad)
    with ScriptedServer({}) as server:
        port = server.port
    result, run = measured(conf_of(port, tmp_path / "results"))
    assert (result.exit_code, result.outcome) == (4, Outcome.NOT_READY)
    assert run.requests().num_rows == 0
    assert (run.info.levels, run.info.diagnosis) == ((), result.message)


FAILURES: Mapping[str, tuple[BaseException, Outcome, int]] = {
    "a lost load process": (BakeoffError("the load process ended with -9"), Outcome.FAILED, 1),
    "an interrupt": (KeyboardInterrupt(), Outcome.INTERRUPTED, 130),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_goes_wrong_during_the_load_is_a_stored_outcome(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    error, outcome, exit_code = FAILURES[name]
    monkeypatch.setattr(FailingLoad, "error", error)
    monkeypatch.setattr(job_module, "LoadProcess", FailingLoad)
    result, run = measured(conf_of(server.port, tmp_path / "results"))
    assert (result.outcome, result.exit_code) == (outcome, exit_code)
    assert run.info.outcome is outcome
    assert run.info.diagnosis == (str(error) or "interrupted; what was measured is kept")
    assert (result.folder / "raw" / "journal.bin").is_file()
    assert list(result.folder.rglob("calls.bin")) == []


def test_a_disk_that_refuses_is_raised_and_leaves_no_run(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailingLoad, "error", StoreWriteError("no room"))
    monkeypatch.setattr(job_module, "LoadProcess", FailingLoad)
    prepared = prepare(conf_of(server.port, tmp_path / "results"), lambda _: None)
    with pytest.raises(StoreWriteError, match="no room"):
        measure(prepared, tmp_path / "results" / "sweep", lambda _: None)
    assert list((tmp_path / "results").rglob("run.json")) == []


def test_the_same_job_again_is_kept_beside_the_first(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "LoadProcess", FailingLoad)
    prepared = prepare(conf_of(server.port, tmp_path / "results"), lambda _: None)
    sweep = tmp_path / "results" / "sweep"
    first = measure(prepared, sweep, lambda _: None)
    second = measure(prepared, sweep, lambda _: None)
    assert second.folder.name == f"{first.folder.name}-2"
    assert len(open_runs(sweep).runs) == 2
