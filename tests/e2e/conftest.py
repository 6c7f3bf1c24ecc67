"""The command line in a folder of its own, and a stand-in engine with a toy model for it."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.paths import cache_dir
from harness.testing.command_line import CommandLine, Ended
from harness.testing.toy_model import write_toy_model

FAKE_SERVER = Path(__file__).with_name("fake_llama_server.py")
CASES = Path(__file__).parents[1] / "data" / "cases"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of bakeoff's own with no engine environment in it."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def bakeoff(tmp_path: Path, cache: Path) -> CommandLine:
    """`bakeoff`, run in `tmp_path`; results go to `tmp_path/results` unless a test says else."""
    return CommandLine(cwd=tmp_path, env={"BAKEOFF_CACHE": str(cache)})


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid GGUF file that is only a vocabulary."""
    return write_toy_model(tmp_path_factory.mktemp("model") / "toy.gguf")


@pytest.fixture(scope="session")
def fake(toy_model: Path) -> list[str]:
    """Overrides for the stand-in server: short prompts, eight tokens an answer, no settling."""
    return [
        "model=file",
        f"model.path={toy_model}",
        "model.name=toy",
        f"engine.program={FAKE_SERVER}",
        "scenario=fixed",
        "scenario.input_tokens=24",
        "scenario.output_tokens=8",
        "load.users=2",
        "load.duration_s=null",
        "load.requests=20",
        "load.settle_s=0.05",
        "validity.max_lag_s=0.5",  # a busy machine is no reason to fail here
    ]


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of the cases from the field."""
    return CASES


@pytest.fixture(scope="session")
def engine_cache() -> Path:
    """The user's own cache, where the embedded engine is installed once and stays."""
    return cache_dir()


@pytest.fixture(scope="session")
def is_root() -> bool:
    return os.geteuid() == 0 and shutil.which("mount") is not None


@dataclass(frozen=True)
class Sweep:
    """A measured sweep of the stand-in server: two settings, two levels, two blocks."""

    bakeoff: CommandLine
    command: tuple[str, ...]
    folder: Path
    ended: Ended


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory, cache: Path, fake: list[str]) -> Sweep:
    bakeoff = CommandLine(cwd=tmp_path_factory.mktemp("sweep"), env={"BAKEOFF_CACHE": str(cache)})
    levels = "[{users: 4, requests: 32}, {shape: poisson, rate_rps: 15, duration_s: 1}]"
    command = (
        "run",
        *fake,
        "engine.max_running=1,4",
        "load=levels",
        f"load.levels={levels}",
        "repeats=2",
        "slo=chat",
        "hardware.price.per_hour=3.6",
        "hardware.price.currency=EUR",
        "hardware.price.date=2026-11-30",
        "hardware.price.source=invoice",
        "name=base",
        "store=store",
    )
    ended = bakeoff(*command)
    return Sweep(bakeoff, command, bakeoff.cwd / "store" / "base", ended)
