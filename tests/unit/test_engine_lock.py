import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.engine.lock import machine_lock
from harness.errors import ConfigError

HOLD = """
import sys
from pathlib import Path
from harness.engine.lock import machine_lock
with machine_lock("engine=a", wait_s=0, progress=print, path=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_held_machine_names_the_holder_then_gives_up(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    argv = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        said: list[str] = []
        with (
            pytest.raises(ConfigError) as caught,
            machine_lock("engine=b", wait_s=0.5, progress=said.append, path=path),
        ):
            pytest.fail("the lock was given twice")
        assert said == [
            f"waiting up to 0.5 s for process {other.pid} (engine=a) to free the machine"
        ]
        assert str(caught.value) == (
            f"the machine is in use by process {other.pid} (engine=a) after 0.5 s of waiting; "
            "let it end, or end it: two engines on one machine disturb each other"
        )
        other.kill()
    with machine_lock("engine=b", wait_s=5, progress=said.append, path=path):
        assert len(said) == 1


def test_the_lock_can_be_taken_again_and_by_other_users(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    old = os.umask(0o077)
    try:
        for _ in range(2):
            with machine_lock("x", wait_s=0, progress=print, path=path):
                assert path.stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(old)


def test_a_process_that_inherits_the_descriptor_keeps_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with machine_lock("x", wait_s=0, progress=print, path=path) as fd:
        keeper = subprocess.Popen(["sleep", "60"], pass_fds=(fd,))
    try:
        with (
            pytest.raises(ConfigError, match=rf"process {os.getpid()} \(x\)"),
            machine_lock("y", wait_s=0, progress=print, path=path),
        ):
            pytest.fail("the lock was given twice")
    finally:
        keeper.kill()
        keeper.wait()
    with machine_lock("y", wait_s=0, progress=print, path=path):
        pass


def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with (
        pytest.raises(ConfigError, match="the machine lock"),
        machine_lock("x", wait_s=0, progress=print, path=tmp_path / "lock"),
    ):
        pytest.fail("a link was followed")
    assert not (tmp_path / "victim").exists()
