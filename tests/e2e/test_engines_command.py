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


@pytest.mark.parametrize(("columns", "most_lines"), [(80, 4), (160, 2)])
def test_the_list_is_blocks_that_fit_the_screen(
    columns: int, most_lines: int, bakeoff: CommandLine, environment: Path, tmp_path: Path
) -> None:
    env = {"BAKEOFF_CACHE": str(tmp_path / "cache")}
    rows = json.loads(bakeoff("engines", "list", "--json", env=env).out)
    listed = bakeoff("engines", "list", env={**env, "COLUMNS": str(columns)})
    lines = listed.out.splitlines()
    assert max(len(line) for line in lines) <= columns
    assert all(line == line.rstrip() for line in lines)
    starts = [i for i, line in enumerate(lines) if not line.startswith(" ")]
    assert [lines[i].split()[0] for i in starts] == [row["name"] for row in rows]
    for row, start, end in zip(rows, starts, [*starts[1:], len(lines)], strict=True):
        assert 2 <= end - start <= most_lines
        below = " ".join(" ".join(lines[start + 1 : end]).split())
        assert row["summary"] in below
        assert (row["image"] or "") in below
        assert all(way in below for way in row["launch"])
    assert any("installed" in line and line.startswith("llamacpp ") for line in lines)


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
