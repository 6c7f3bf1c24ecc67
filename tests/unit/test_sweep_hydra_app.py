"""Hydra's command line with our sweeper, seen by a task that only notes what it gets."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from adapters import ADAPTERS
from harness.config import RunConf
from harness.errors import ConfigError, NotReadyError
from harness.sweep.compose import to_run_conf
from harness.sweep.hydra_app import run_hydra


class Noting:
    """Launches all jobs `blocks` times, every second time backwards; no engine."""

    def __init__(self, *, blocks: int = 0, code: int = 0, failure: Exception | None = None) -> None:
        self.jobs: list[list[str]] = []
        self.confs: list[RunConf] = []
        self.played: list[RunConf] = []
        self.results: list[Any] = []
        self._blocks = blocks
        self._code = code
        self._failure = failure

    def prepare(self, jobs: Sequence[Sequence[str]], configs: Sequence[DictConfig]) -> Any:
        self.jobs = [list(job) for job in jobs]
        self.confs = [to_run_conf(config) for config in configs]
        return [self.jobs[:: (-1) ** number] for number in range(self._blocks)]

    def __call__(self, config: DictConfig) -> int:
        if self._failure is not None:
            raise self._failure
        self.played.append(to_run_conf(config))
        return len(self.played)

    def finish(self, results: Sequence[Any]) -> int:
        self.results = list(results)
        return self._code


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    GlobalHydra.instance().clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")


def refused(*arguments: str) -> str:
    task = Noting()
    with pytest.raises(ConfigError) as caught:
        run_hydra("bakeoff run", arguments, task)
    assert task.played == []
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_overrides_there_is_one_job() -> None:
    task = Noting(blocks=2)
    assert run_hydra("bakeoff run", [], task) == 0
    assert task.jobs == [[]]
    assert (task.confs[0].engine.name, task.confs[0].scenario.name) == ("llamacpp", "chat")
    assert task.played == [task.confs[0]] * 2
    assert task.results == [1, 2]


def test_commas_sweep_without_a_flag_and_blocks_are_launched_in_their_order() -> None:
    task = Noting(blocks=2)
    run_hydra("bakeoff run", ["engine.max_running=1,8", "seed=7"], task)
    assert task.jobs == [
        ["engine.max_running=1", "seed=7"],
        ["engine.max_running=8", "seed=7"],
    ]
    assert [conf.engine.max_running for conf in task.played] == [1, 8, 8, 1]
    assert {conf.seed for conf in task.played} == {7}


def test_the_exit_code_is_the_tasks() -> None:
    assert run_hydra("bakeoff run", ["seed=1"], Noting(code=3)) == 3


def test_an_experiment_brings_its_own_sweep_and_the_command_line_wins() -> None:
    task = Noting()
    run_hydra("bakeoff run", ["experiment=demo"], task)
    assert [conf.engine.max_running for conf in task.confs] == [1, 8]
    assert {conf.name for conf in task.confs} == {"demo"}
    task = Noting()
    run_hydra("bakeoff run", ["experiment=demo", "engine.max_running=2,3", "name=x"], task)
    assert [conf.engine.max_running for conf in task.confs] == [2, 3]
    assert {conf.name for conf in task.confs} == {"x"}


def test_cfg_prints_the_configuration_and_runs_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = Noting()
    assert run_hydra("bakeoff run", ["--cfg", "job", "load.users=3"], task) == 0
    out = capsys.readouterr().out
    assert "users: 3" in out
    assert "max_running: 4" in out
    assert task.jobs == []


def test_help_is_hydras_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    task = Noting()
    assert run_hydra("bakeoff run", ["--help"], task) == 0
    assert f"engine: {', '.join(ADAPTERS)}" in capsys.readouterr().out
    assert task.jobs == []


def test_a_flag_that_hydra_does_not_know_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_hydra("bakeoff run", ["--nope"], Noting()) == 2
    assert "--nope" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("engine=vlm", f"engine=vlm: not known; choose one of: {', '.join(ADAPTERS)}"),
        ("load.users=many", "load.users=many: must be an integer"),
        ("repeats=0", "repeats=0: must be an integer >= 1"),
    ],
)
def test_what_is_refused_says_what_helps(argument: str, message: str) -> None:
    assert refused(argument) == message


def test_a_value_that_needs_quotes_is_shown_in_the_form_that_works() -> None:
    message = refused("model.path=ckpt/epoch=9-step=90.bin")
    assert message.startswith("model.path=ckpt/epoch=9-step=90.bin: Hydra cannot read this value (")
    quoted = 'model.path="ckpt/epoch=9-step=90.bin"'
    assert message.endswith(
        f"a value with special characters needs quotes inside the shell's: '{quoted}'"
    )
    for form in (quoted, r"model.path=ckpt/epoch\=9-step\=90.bin"):
        task = Noting()
        run_hydra("bakeoff run", ["model=file", form], task)
        assert task.confs[0].model.path == "ckpt/epoch=9-step=90.bin"


def test_an_error_of_ours_in_a_job_is_raised_as_it_is() -> None:
    task = Noting(blocks=1, failure=NotReadyError("the server did not come up"))
    with pytest.raises(NotReadyError, match="the server did not come up"):
        run_hydra("bakeoff run", ["seed=1"], task)


def test_a_defect_in_a_job_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run_hydra("bakeoff run", ["seed=1"], Noting(blocks=1, failure=ZeroDivisionError("x")))


def test_raw_arguments_need_no_plus() -> None:
    task = Noting()
    run_hydra("bakeoff run", ["engine.args.cache-ram=0", "engine.env.X=1"], task)
    assert task.confs[0].engine.args == {"cache-ram": 0}
    assert task.confs[0].engine.env == {"X": "1"}


def test_options_may_stand_between_overrides(tmp_path: Path) -> None:
    own = tmp_path / "mine" / "scenario"
    own.mkdir(parents=True)
    (own / "tiny.yaml").write_text("name: tiny\ninput_tokens: 5\noutput_tokens: 3\n")
    task = Noting()
    arguments = ["seed=5", "--config-dir", str(own.parent), "scenario=tiny"]
    run_hydra("bakeoff run", arguments, task)
    assert (task.confs[0].scenario.name, task.confs[0].seed) == ("tiny", 5)


def test_the_callers_argv_and_folder_stay_as_they_were(tmp_path: Path) -> None:
    argv = list(sys.argv)
    run_hydra("bakeoff run", ["seed=1"], Noting())
    with pytest.raises(ConfigError):
        run_hydra("bakeoff run", ["nope=1"], Noting())
    assert sys.argv == argv
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []
