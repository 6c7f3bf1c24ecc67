import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config import EngineConf, LaunchConf, LaunchMode, ModelConf, ModelFormat, RunConf
from harness.engine.converted import NOTE, converted_path, origin
from harness.engine.environment import Environment
from harness.engine.model_file import file_sha256
from harness.engine.model_folder import identity_of
from harness.errors import ConfigError, EnvironmentInstallError
from harness.registry import open_adapter
from harness.run.models import Model, check_own_model, find_model

GGUF = b"GGUF\x03\0\0\0 not read any further"
CONVERTER = """#!{python}
import json, pathlib, sys
script, gguf, folder, _, dtype = sys.argv[1:]
assert script.endswith("gguf_to_safetensors.py")
with open({log!r}, "a") as log:
    log.write(gguf + "\\n")
if "broken" in gguf:
    sys.exit("ValueError: GGUF model with architecture x is not supported yet.")
folder = pathlib.Path(folder)
folder.mkdir()
(folder / "config.json").write_text(json.dumps({{"dtype": dtype}}))
(folder / "model.safetensors").write_bytes(b"weights of " + pathlib.Path(gguf).read_bytes())
print("reading")
print(json.dumps({{"dtype": dtype, "made_with": {{"transformers": "5"}}}}))
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAKEOFF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(GGUF)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """One whose Python writes safetensors that say what they were made of."""
    python = tmp_path / "python"
    python.write_text(CONVERTER.format(python=sys.executable, log=str(tmp_path / "made.log")))
    python.chmod(0o755)
    return Environment(name="x", python=python, site_packages=tmp_path, folder=tmp_path)


def found(
    path: Path | str,
    wanted: ModelFormat | None,
    environment: Environment | None = None,
    *,
    mode: LaunchMode = LaunchMode.PROCESS,
    dtype: str | None = None,
    repo: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> Model:
    conf = RunConf(
        engine=EngineConf(name="llamacpp", dtype=dtype),
        model=ModelConf(name="m", path=str(path), repo=repo),
        launch=LaunchConf(mode=mode, base_url="http://x" if mode is LaunchMode.ATTACH else None),
    )
    adapter = open_adapter(EngineConf(name="llamacpp"), conf.model, LaunchMode.PROCESS)
    adapter.model_format = wanted
    return find_model(conf, adapter, environment, tell)


def test_an_engine_that_reads_gguf_is_given_the_file(gguf: Path) -> None:
    assert found(gguf, ModelFormat.GGUF) == Model(path=gguf, source=gguf)


def test_a_folder_is_made_of_the_file_once(
    gguf: Path, environment: Environment, tmp_path: Path
) -> None:
    said: list[str] = []
    first = found(gguf, ModelFormat.HF, environment, tell=said.append)
    assert first.path == converted_path(gguf, "float32")
    assert first.source == gguf
    assert len(said) == 1
    assert said[0].startswith("writing m.gguf as float32 safetensors into ")
    assert found(gguf, ModelFormat.HF, None, tell=said.append) == first  # no Python is needed now
    assert (tmp_path / "made.log").read_text().splitlines() == [str(gguf)]
    assert len(said) == 1


def test_another_type_of_numbers_or_another_file_is_another_folder(
    gguf: Path, environment: Environment
) -> None:
    plain = found(gguf, ModelFormat.HF, environment).path
    half = found(gguf, ModelFormat.HF, environment, dtype="bfloat16").path
    gguf.write_bytes(GGUF + b"changed")
    changed = found(gguf, ModelFormat.HF, environment).path
    assert len({plain, half, changed}) == 3
    assert half is not None
    assert half.name.endswith("-bfloat16")


def test_what_a_folder_was_made_from_stays_with_it(gguf: Path, environment: Environment) -> None:
    folder = found(gguf, ModelFormat.HF, environment).path
    assert folder is not None
    facts = identity_of(folder)
    assert facts["derived_from"] == {
        "file": "m.gguf",
        "sha256": file_sha256(gguf),
        "dtype": "float32",
        "made_with": {"transformers": "5"},
    }
    assert facts["sha256"] == file_sha256(folder / "model.safetensors")
    assert facts["format"] == "safetensors float32"
    assert identity_of(gguf)["format"] == "GGUF"
    assert "derived_from" not in identity_of(gguf)


def test_a_half_made_folder_is_made_again(gguf: Path, environment: Environment) -> None:
    folder = found(gguf, ModelFormat.HF, environment).path
    assert folder is not None
    (folder / NOTE).unlink()
    (folder / "model.safetensors").write_bytes(b"cut")
    again = found(gguf, ModelFormat.HF, environment).path
    assert again == folder
    assert (folder / "model.safetensors").read_bytes() == b"weights of " + GGUF
    assert origin(folder) is not None


def test_a_file_that_cannot_be_converted_says_why(tmp_path: Path, environment: Environment) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(GGUF)
    with pytest.raises(EnvironmentInstallError, match=r"x is not supported yet\.; give"):
        found(broken, ModelFormat.HF, environment)
    assert not converted_path(broken, "float32").exists()


def test_without_a_python_the_command_that_gives_one_is_named(gguf: Path) -> None:
    with pytest.raises(ConfigError, match="bakeoff engines install transformers"):
        found(gguf, ModelFormat.HF, None)


def test_a_server_that_runs_already_only_has_its_prompts_sized(gguf: Path) -> None:
    attached = found(gguf, ModelFormat.HF, None, mode=LaunchMode.ATTACH)
    assert attached == Model(path=gguf, source=gguf)
    assert found("", None, None, mode=LaunchMode.ATTACH) == Model()


def test_a_name_on_a_hub_needs_no_file() -> None:
    assert found("", ModelFormat.HF, None, repo="org/model") == Model()
    with pytest.raises(ConfigError, match=r"model\.path: not given"):
        found("", ModelFormat.HF, None)


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = ModelConf(name="m", path=str(folder))
    with pytest.raises(ConfigError, match="no such file"):
        check_own_model(model)
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        check_own_model(model)
    (folder / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16"}))
    with pytest.raises(ConfigError, match="neither safetensors"):
        check_own_model(model)
    for name in ("b", "a"):
        (folder / f"{name}.safetensors").write_bytes(name.encode())
    check_own_model(model)
    facts = identity_of(folder)
    assert (facts["bytes"], facts["format"]) == (2, "safetensors bfloat16")
    (folder / "a.safetensors").write_bytes(b"other")
    assert identity_of(folder)["sha256"] != facts["sha256"]
    assert found(folder, ModelFormat.HF) == Model(path=folder, source=folder)
    with pytest.raises(ConfigError, match=r"reads one \.gguf file"):
        found(folder, ModelFormat.GGUF)
    check_own_model(replace(model, path=""))
