"""The command line in a folder of its own, and a stand-in engine with a toy model for it."""

import os
import shutil
from pathlib import Path

import pytest

from harness.paths import cache_dir
from harness.testing.command_line import CommandLine
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
        f"engine.args.binary={FAKE_SERVER}",
        "scenario=fixed",
        "scenario.input_tokens=24",
        "scenario.output_tokens=8",
        "load.users=2",
        "load.duration_s=null",
        "load.requests=20",
        "load.settle_s=0.05",
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
