"""What a sweep decides: order, reuse, exit codes, interrupts. Measuring itself is replaced."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from harness.config import (
    EngineConf,
    LaunchConf,
    LaunchMode,
    LoadConf,
    ModelConf,
    RunConf,
    ScenarioConf,
)
from harness.errors import ConfigError, InterruptedRunError, StoreWriteError
from harness.run.outcome import JobResult
from harness.sweep import run_task
from harness.sweep.run_task import RunTask
from harness.testing.records import make_info, store_run
from harness.types import Outcome

ARMS = [["engine.max_running=1"], ["engine.max_running=8"]]


class Bench:
    """Stands in for preparing and measuring; an arm's content hash is `<max_running>-<block>`."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.measured: list[str] = []
        self.outcomes: dict[str, tuple[Outcome, int]] = {}
        self.failure: Exception | None = None

    def prepare(self, conf: RunConf, _progress: Any) -> Any:
        name = f"{conf.engine.max_running}-{conf.block}"
        self.prepared.append(name)
        return SimpleNamespace(conf=conf, content_hash=name)

    def measure(self, prepared: Any, folder: Path, _progress: Any) -> JobResult:
        if self.failure is not None:
            raise self.failure
        name = prepared.content_hash
        self.measured.append(name)
        outcome, code = self.outcomes.get(name, (Outcome.OK, 0))
        return JobResult(
            run_id=name, label="llamacpp chat", folder=folder, outcome=outcome, exit_code=code
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    monkeypatch.setattr(run_task, "check", lambda *_, **__: None)
    monkeypatch.setattr(run_task, "_check_starts", lambda _: None)
    monkeypatch.setattr(run_task, "can_prepare", lambda _: True)
    monkeypatch.setattr(run_task, "prepare", bench.prepare)
    monkeypatch.setattr(run_task, "measure", bench.measure)
    return bench


def configs(store: Path, jobs: Sequence[Sequence[str]] = ARMS, **changes: Any) -> list[DictConfig]:
    values: dict[str, Any] = {
        "engine": EngineConf(name="llamacpp"),
        "model": ModelConf(name="tiny"),
        "scenario": ScenarioConf(name="chat"),
        "load": LoadConf(users=2, requests=4),
        "store": str(store),
        "name": "sweep",
        "repeats": 2,
        **changes,
    }
    base = OmegaConf.structured(RunConf(**values))
    return [OmegaConf.merge(base, OmegaConf.from_dotlist(list(job))) for job in jobs]  # type: ignore[misc]


def played(
    task: RunTask, store: Path, blocks: list[list[list[str]]], **changes: Any
) -> list[JobResult]:
    """Launch as Hydra would: each job's overrides on the same base."""
    overrides = [job for block in blocks for job in block]
    return [task(config) for config in configs(store, overrides, **changes)]


def stored(store: Path, name: str, outcome: Outcome = Outcome.OK) -> None:
    info = make_info(run_id=name, content_hash=name, outcome=outcome)
    store_run(store / "before", info, [])


def test_every_arm_is_launched_once_a_block_with_its_name_and_block(
    tmp_path: Path, bench: Bench
) -> None:
    task = RunTask(lambda _: None)
    blocks = task.prepare(ARMS, configs(tmp_path))
    assert [sorted(job[0] for job in block) for block in blocks] == [
        ["engine.max_running=1", "engine.max_running=8"]
    ] * 2
    for number, block in enumerate(blocks):
        assert all(job[1:] == ["name=sweep", f"block={number}"] for job in block)
    assert bench.prepared == ["1-0", "8-0", "1-1", "8-1"]
    results = played(task, tmp_path, blocks)
    assert sorted(bench.measured[:2]) == ["1-0", "8-0"]
    assert sorted(bench.measured[2:]) == ["1-1", "8-1"]
    assert bench.prepared == ["1-0", "8-0", "1-1", "8-1"]  # not made again
    assert task.finish(results) == 0
    assert task.sweep is not None
    assert task.sweep.folder == tmp_path / "sweep"


def test_results_are_labelled_with_what_sets_them_apart(tmp_path: Path, bench: Bench) -> None:
    jobs = [["engine.max_running=1", "seed=1"], ["engine.max_running=8", "seed=1"]]
    said: list[str] = []
    task = RunTask(said.append)
    blocks = task.prepare(jobs, configs(tmp_path, jobs, repeats=1))
    labels = {result.label for result in played(task, tmp_path, blocks, repeats=1)}
    assert labels == {
        "llamacpp chat block 0 (engine.max_running=1)",
        "llamacpp chat block 0 (engine.max_running=8)",
    }
    assert len(bench.measured) == 2
    assert [line.partition("]")[0] for line in said] == ["[1/2", "[2/2, nearly done"]


def test_a_name_in_the_overrides_is_not_given_twice(tmp_path: Path, bench: Bench) -> None:
    jobs = [["name=mine", "block=4", "seed=1"]]
    task = RunTask(lambda _: None)
    (((*overrides,),),) = task.prepare(jobs, configs(tmp_path, jobs, repeats=1))
    assert overrides == ["seed=1", "name=mine", "block=0"]
    assert bench.prepared == ["None-0"]


def test_without_a_name_it_is_the_time(tmp_path: Path, bench: Bench) -> None:
    task = RunTask(lambda _: None)
    (((_, name, _),),) = task.prepare(ARMS[:1], configs(tmp_path, ARMS[:1], name="", repeats=1))
    assert len(name) == len("name=20261130-101500")
    assert task.sweep is not None
    assert task.sweep.folder == tmp_path / name.removeprefix("name=")
    assert bench.prepared


def test_blocks_that_are_stored_whole_are_not_measured_again(tmp_path: Path, bench: Bench) -> None:
    for name in ("1-0", "8-0", "1-1"):
        stored(tmp_path, name)
    task = RunTask(lambda _: None)
    blocks = task.prepare(ARMS, configs(tmp_path))
    assert [sorted(job[-1] for job in block) for block in blocks] == [["block=1", "block=1"]]
    assert task.sweep is not None
    assert [path.name for path in task.sweep.schedule.stored] == ["1-0", "8-0"]
    assert [conf.block for conf in task.sweep.confs] == [1, 1]
    assert bench.measured == []


@pytest.mark.parametrize(
    "changes",
    [
        {"rerun": True},
        {"launch": LaunchConf(mode=LaunchMode.ATTACH, base_url="http://127.0.0.1:1")},
    ],
    ids=["asked for", "a server that is not ours"],
)
def test_some_sweeps_are_always_measured_anew(
    tmp_path: Path, bench: Bench, changes: dict[str, Any]
) -> None:
    for name in ("1-0", "8-0", "1-1", "8-1"):
        stored(tmp_path, name)
    assert RunTask(lambda _: None).prepare(ARMS, configs(tmp_path)) == []
    assert len(RunTask(lambda _: None).prepare(ARMS, configs(tmp_path, **changes))) == 2
    assert bench.measured == []


def test_runs_that_were_not_good_are_measured_again(tmp_path: Path, bench: Bench) -> None:
    stored(tmp_path, "1-0")
    stored(tmp_path, "8-0", Outcome.INVALID)
    blocks = RunTask(lambda _: None).prepare(ARMS, configs(tmp_path, repeats=1))
    assert len(blocks) == 1
    assert bench.prepared == ["1-0", "8-0"]


def test_a_damaged_run_is_told_and_measured_again(tmp_path: Path, bench: Bench) -> None:
    for name in ("1-0", "8-0"):
        stored(tmp_path, name)
    (tmp_path / "before" / "8-0" / "run.json").write_text("{")
    said: list[str] = []
    assert len(RunTask(said.append).prepare(ARMS, configs(tmp_path, repeats=1))) == 1
    (line,) = said
    assert "not valid JSON" in line
    assert bench.prepared == ["1-0", "8-0"]


@pytest.mark.parametrize("key", ["repeats=3", "store=elsewhere"])
def test_what_holds_for_the_whole_sweep_cannot_be_swept(
    tmp_path: Path, bench: Bench, key: str
) -> None:
    jobs = [["seed=1"], [key]]
    with pytest.raises(ConfigError) as caught:
        RunTask(lambda _: None).prepare(jobs, configs(tmp_path, jobs))
    assert str(caught.value) == "repeats and store cannot be swept; give each one value"
    assert bench.prepared == []


def test_a_preview_launches_nothing_but_knows_all_jobs(tmp_path: Path, bench: Bench) -> None:
    task = RunTask(lambda _: None, is_preview=True)
    assert task.prepare(ARMS, configs(tmp_path)) == []
    assert task.sweep is not None
    assert len(task.sweep.confs) == 4
    assert task.finish([]) == 0
    assert bench.measured == []


def test_a_preview_installs_nothing(
    tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_task, "can_prepare", lambda _: False)
    task = RunTask(lambda _: None, is_preview=True)
    task.prepare(ARMS, configs(tmp_path))
    assert bench.prepared == []
    assert task.sweep is not None
    assert len(task.sweep.confs) == 4


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([0, 0], 0), ([4, 4], 4), ([0, 5], 3), ([3, 4], 3), ([3, 3], 3)],
)
def test_the_exit_code_of_a_sweep(tmp_path: Path, codes: list[int], code: int) -> None:
    results = [
        JobResult(run_id="", label="", folder=tmp_path, outcome=Outcome.OK, exit_code=one)
        for one in codes
    ]
    assert RunTask(lambda _: None).finish(results) == code


def test_a_failed_job_does_not_end_the_sweep(tmp_path: Path, bench: Bench) -> None:
    bench.outcomes["1-0"] = (Outcome.NOT_READY, 4)
    task = RunTask(lambda _: None)
    results = played(task, tmp_path, task.prepare(ARMS, configs(tmp_path)))
    assert len(results) == len(bench.measured) == 4
    assert task.finish(results) == 3
    assert len(task.results) == 4


def test_an_interrupt_ends_the_sweep_and_says_how_to_go_on(tmp_path: Path, bench: Bench) -> None:
    bench.outcomes["8-0"] = (Outcome.INTERRUPTED, 130)
    task = RunTask(lambda _: None)
    jobs = [["engine.max_running=1"], ["engine.max_running=8"], ["engine.max_running=9"]]
    task.prepare(jobs, configs(tmp_path, jobs, repeats=1))
    first, second, third = configs(tmp_path, jobs, repeats=1)
    task(first)
    for config in (second, third):  # a launcher may still start the next
        with pytest.raises(InterruptedRunError) as caught:
            task(config)
        assert str(caught.value) == (
            "interrupted; 1 finished runs and what was measured of this one are kept in "
            f"{tmp_path}/sweep; the same command goes on from there"
        )
    assert bench.measured == ["1-0", "8-0"]
    assert caught.value.exit_code == 130
    assert len(task.results) == 2


def test_a_full_disk_ends_the_sweep(tmp_path: Path, bench: Bench) -> None:
    task = RunTask(lambda _: None)
    task.prepare(ARMS, configs(tmp_path, repeats=1))
    bench.failure = StoreWriteError("no room")
    first, second = configs(tmp_path, repeats=1)
    with pytest.raises(StoreWriteError, match="no room"):
        task(first)
    bench.failure = None
    with pytest.raises(StoreWriteError, match="no room"):
        task(second)
    assert bench.measured == []


def test_a_job_that_was_prepared_elsewhere_is_prepared_here(tmp_path: Path, bench: Bench) -> None:
    (config,) = configs(tmp_path, [["engine.max_running=5", "block=2"]])
    assert RunTask(lambda _: None)(config).run_id == "5-2"
    assert bench.prepared == ["5-2"]
