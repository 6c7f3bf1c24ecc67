"""`bakeoff engines`: what is known, what is installed, and how it is removed."""

import json
import sys
from pathlib import Path

import pytest

from harness.testing.command_line import CommandLine


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment as the installer leaves it, without packages."""
    folder = tmp_path / "cache" / "engines" / "llamacpp-0123456789ab"
    (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    marker = {"name": "llamacpp", "packages": ["xllamacpp==1"]}
    (folder / "bakeoff.json").write_text(json.dumps(marker))
    return folder


def test_engines_are_listed_and_an_environment_is_removed(
    bakeoff: CommandLine, environment: Path, tmp_path: Path
) -> None:
    env = {"BAKEOFF_CACHE": str(tmp_path / "cache")}
    rows = {
        row["name"]: row for row in json.loads(bakeoff("engines", "list", "--json", env=env).out)
    }
    assert rows.keys() >= {"llamacpp", "openai", "tgi"}
    assert rows["llamacpp"]["environments"] == [str(environment)]
    assert rows["llamacpp"]["size_bytes"] > 0
    assert rows["openai"]["environments"] == []
    assert not rows["openai"]["can_install"]
    table = bakeoff("engines", "list", env=env)
    assert table.code == 0
    assert "installed" in table.out

    removed = bakeoff("engines", "remove", "llamacpp", env=env)
    assert removed.code == 0
    assert removed.out == f"removed {environment}\n"
    assert not environment.exists()
    table = bakeoff("engines", "list", env=env)
    assert "bakeoff engines install llamacpp" in table.out
    again = bakeoff("engines", "remove", "llamacpp", env=env)
    assert (again.code, "no environment is installed" in again.err) == (2, True)


def test_an_engine_without_an_environment_says_how_it_is_used(bakeoff: CommandLine) -> None:
    ended = bakeoff("engines", "install", "openai")
    assert ended.code == 2
    assert "launch=attach launch.base_url=http://127.0.0.1:PORT" in ended.err
    assert "Traceback" not in ended.err


def test_the_installed_script_is_the_same_program(bakeoff: CommandLine) -> None:
    script = Path(sys.executable).with_name("bakeoff")
    if not script.exists():
        pytest.skip("bakeoff is not installed beside this Python")
    by_script = CommandLine(cwd=bakeoff.cwd, program=(str(script),))("--help")
    assert by_script.code == 0
    assert "recommend" in by_script.out
    assert by_script.err == ""
