"""Runs a task through Hydra with our own sweeper: randomised complete blocks.

Hydra accepts a sweeper only from the `hydra_plugins` name space, so one is registered there by
name without a folder of that name. The task sees all jobs at once before any is launched.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO
from types import ModuleType
from typing import Any, Protocol

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from harness.errors import ConfigError
from harness.paths import conf_dir
from harness.sweep.compose import register_schemas
from harness.sweep.messages import clean_message

_PARENT, _NAME = "hydra_plugins", "bakeoff_blocks"
_WITH_VALUE = {
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp"),
    *("--config-name", "-cn", "--config-dir", "-cd"),
}
_FREE_KEYS = ("engine.args.", "engine.env.")


class Task(Protocol):
    """What runs under Hydra."""

    def prepare(self, jobs: Sequence[Sequence[str]], configs: Sequence[DictConfig]) -> Any:
        """See all jobs (overrides and composed configs); returns the blocks to launch."""

    def __call__(self, config: DictConfig) -> Any:
        """Do one job; called by the launcher, perhaps on another machine."""

    def finish(self, results: Sequence[Any]) -> int:
        """See all results; returns the exit code."""


class BlockSweeper(Sweeper):
    """Expands the command line to jobs and launches them one randomised block at a time.

    Not derived from Hydra's BasicSweeper: Hydra's plugin scan loads that module a second time.
    """

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self._params = params or {}

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Keep what Hydra hands over; the task decides on the blocks."""
        self._loader = hydra_context.config_loader
        self._config = config
        self._task: Task = task_function
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> int:
        """Run all blocks; returns the exit code."""
        from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # noqa: PLC0415

        # the command line comes last, so that it replaces what an experiment sweeps
        swept = [_opened(f"{key}={value}") for key, value in self._params.items()]
        parser = OverridesParser.create(config_loader=self._loader)
        overrides = parser.parse_overrides([*swept, *arguments])
        [jobs] = BasicSweeper.split_arguments(overrides, None)
        configs = [self._loader.load_sweep_config(self._config, list(job)) for job in jobs]
        results: list[Any] = []
        for block in self._task.prepare(jobs, configs):
            launched = self._launcher.launch(block, initial_job_idx=len(results))
            results += [_result(job) for job in launched]
        return self._task.finish(results)


def _result(job: JobReturn) -> Any:
    if job.status is JobStatus.FAILED:
        with redirect_stderr(StringIO()):  # Hydra would print the overrides above our sentence
            _ = job.return_value  # raises what the job raised
    return job.return_value


def _register_sweeper() -> None:
    try:
        parent = import_module(_PARENT)
    except ImportError:  # no plugin is installed
        parent = sys.modules[_PARENT] = ModuleType(_PARENT)
        parent.__path__ = []
    module = ModuleType(f"{_PARENT}.{_NAME}")
    BlockSweeper.__module__ = module.__name__
    module.BlockSweeper = BlockSweeper  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    setattr(parent, _NAME, module)
    Plugins.instance().register(BlockSweeper)


def run_hydra(program: str, arguments: Sequence[str], task: Task) -> int:
    """Run `task` with Hydra's own command line; returns its exit code.

    ConfigError for whatever Hydra or OmegaConf refuses, with the hint that its message lacks.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"
    register_schemas()
    _register_sweeper()
    results: list[int] = []
    watched = _Watched(task, results)
    argv, sys.argv = sys.argv, [program, *_marked_as_sweep(_ordered(arguments))]
    try:
        decorate = hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")
        decorate(watched)()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(clean_message(error)) from error
    except SystemExit as error:  # Hydra's own argument parser
        return 0 if not error.code else ConfigError.exit_code
    finally:
        sys.argv = argv
    return results[0] if results else 0


def _ordered(arguments: Sequence[str]) -> list[str]:
    """Options first: Hydra's parser does not take overrides on both sides of an option."""
    options: list[str] = []
    overrides: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        is_override = "=" in argument or argument.startswith("~")
        if before in _WITH_VALUE or argument.startswith("-") or not is_override:
            options.append(argument)
        else:
            overrides.append(_opened(argument))
    return [*options, *overrides]


def _opened(argument: str) -> str:
    """Raw arguments and variables are keys that no schema knows: no `+` is asked for them."""
    return f"++{argument}" if argument.startswith(_FREE_KEYS) else argument


def _marked_as_sweep(arguments: Sequence[str]) -> list[str]:
    """`engine=a,b` without `-m` is an error in Hydra, so mark each call as a sweep."""
    shows = {"--cfg", "-c", "--help", "-h", "--hydra-help", "--info", "-i", "--version"}
    is_shown = any(argument.split("=")[0] in shows for argument in arguments)
    return list(arguments) if is_shown else ["--multirun", *arguments]


class _Watched:
    """The task, keeping the exit code that Hydra would throw away."""

    def __init__(self, task: Task, results: list[int]) -> None:
        self._task = task
        self._results = results

    def prepare(self, jobs: Sequence[Sequence[str]], configs: Sequence[DictConfig]) -> Any:
        return self._task.prepare(jobs, configs)

    def __call__(self, config: DictConfig) -> Any:
        return self._task(config)

    def finish(self, results: Sequence[Any]) -> int:
        self._results.append(self._task.finish(results))
        return self._results[0]
