"""No space left: seen before the run, or in the middle of it; exit code 6, one clear sentence."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.testing.command_line import PROGRAM, CommandLine

pytestmark = pytest.mark.timeout(300)  # runs wait for one another on a machine

_LIMIT = (
    "import os, resource, sys; size = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)); os.execv(sys.argv[2], sys.argv[2:])"
)
MOUNT = shutil.which("mount")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or MOUNT is None:
        pytest.skip("mounting a small file system needs root")
    command = [MOUNT, "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    made = subprocess.run(command, check=False, capture_output=True)
    if made.returncode:
        pytest.skip(f"no tmpfs here: {made.stderr.decode(errors='replace').strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_too_little_space_is_seen_before_the_run(
    bakeoff: CommandLine, fake: list[str], small_disk: Path
) -> None:
    ended = bakeoff("run", *fake, f"store={small_disk}/results", "name=small")
    assert ended.code == 2
    assert f"store={small_disk}/results: 0.0 GB free, this run may need 0.2 GB" in ended.err
    assert "choose another store=DIR" in ended.err
    assert "Traceback" not in ended.err
    assert "starting" not in ended.err


def test_a_disk_that_fills_up_during_the_load_ends_the_sweep(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    """With the largest file that may be written in place of a disk; the journal is the largest."""
    limit_bytes = 200_000
    limited = replace(bakeoff, program=(sys.executable, "-c", _LIMIT, str(limit_bytes), *PROGRAM))
    ended = limited("run", *fake, "load.requests=400", "load.users=4,2", "name=full")
    assert ended.code == 6, ended.err
    assert "journal.bin: cannot be written: File too large" in ended.err
    assert "Traceback" not in ended.err
    assert "Error executing job" not in ended.err
    assert ended.err.count("starting") == 1  # the second job would meet the same disk
    (journal,) = (tmp_path / "results" / "full").rglob("journal.bin")
    assert 100_000 < journal.stat().st_size <= limit_bytes  # what came before is kept
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY


def test_a_store_that_cannot_be_made(bakeoff: CommandLine, fake: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = bakeoff("run", *fake, "store=file/results")
    assert ended.code == 6
    assert "store=file/results: Not a directory" in ended.err
    assert "Traceback" not in ended.err
