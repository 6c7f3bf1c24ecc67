import resource
import subprocess
import sys

import pytest

from harness.errors import ConfigError
from harness.load.driver import LoadProcess
from harness.load.wire.open_files import check_connections


def test_a_hard_limit_that_is_too_low_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.load.wire.open_files.resource.getrlimit", lambda _: (64, 128))
    check_connections(64)
    with pytest.raises(ConfigError) as caught:
        check_connections(65)
    assert str(caught.value) == (
        "open-file limit 128 is too low for 65 connections; raise it with: ulimit -Hn 129"
    )
    assert caught.value.exit_code == 2


def test_without_a_limit_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr("harness.load.wire.open_files.resource.getrlimit", lambda _: unlimited)
    check_connections(10**9)


CHILD = """
import resource
from harness.load.wire.open_files import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))
print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_soft_limit_is_raised_to_the_hard_one() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert done.stdout == "256 (256, 256)\n"


def test_the_load_process_raises_its_own_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    try:
        with LoadProcess() as load:
            load._child.event(20.0)  # ready
            limits = resource.prlimit(load.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits == (hard, hard)
