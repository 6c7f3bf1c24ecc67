"""Engines started, watched and stopped for real, with stand-in programs in place of engines."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.engine.process import EngineProcess
from harness.errors import ConfigError

# A parent that serves, a child in its own session, and a grandchild that detached by a double
# fork; the last two ignore SIGTERM, like engine workers that outlive their server.
GHOSTS = """
import os, signal, sys, time
def stay(name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(os.path.join(sys.argv[1], name), "w").write(str(os.getpid()))
    time.sleep(600)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            stay("grandchild")
        os._exit(0)
    stay("child")
signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
open(os.path.join(sys.argv[1], "parent"), "w").write(str(os.getpid()))
time.sleep(600)
"""


def until(check: Callable[[], bool], timeout_s: float = 10.0) -> float:
    """Seconds until `check` holds; fails the test after `timeout_s`."""
    start_s = time.monotonic()
    while not check():
        assert time.monotonic() - start_s < timeout_s, "did not happen in time"
        time.sleep(0.02)
    return time.monotonic() - start_s


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ghost_pids(folder: Path) -> dict[str, int]:
    def texts() -> list[str]:
        names = ("parent", "child", "grandchild")
        return [(folder / n).read_text() for n in names if (folder / n).exists()]

    until(lambda: len(texts()) == 3 and all(texts()))
    pids = {n: int((folder / n).read_text()) for n in ("parent", "child", "grandchild")}
    assert all(map(is_alive, pids.values()))
    return pids


@pytest.fixture
def ghosts(tmp_path: Path) -> Iterator[list[str]]:
    """The command of a server that leaves ghosts; whatever a failing test left is ended."""
    script = tmp_path / "ghosts.py"
    script.write_text(GHOSTS)
    yield [sys.executable, str(script), str(tmp_path)]
    for name in ("parent", "child", "grandchild"):
        path = tmp_path / name
        if path.exists() and path.read_text() and is_alive(int(path.read_text())):
            os.kill(int(path.read_text()), signal.SIGKILL)


def engine(tmp_path: Path, code: str, **settings: object) -> EngineProcess:
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    return EngineProcess("stand-in", argv, {}, log_path=tmp_path / "engine.log", **settings)  # type: ignore[arg-type]


def test_stop_leaves_no_descendant_in_whatever_session(tmp_path: Path, ghosts: list[str]) -> None:
    process = EngineProcess("ghosts", ghosts, {}, log_path=tmp_path / "engine.log").start()
    pids = ghost_pids(tmp_path)
    assert process.pid == pids["parent"]
    assert set(pids.values()) <= set(process.tree_pids())
    start_s = time.monotonic()
    status = process.stop()
    took_s = time.monotonic() - start_s
    assert [name for name, pid in pids.items() if is_alive(pid)] == []
    assert took_s < 5.0  # SIGTERM, a second for the orphans, SIGKILL
    assert status is not None
    assert (status.code, status.signal) == (0, None)


def test_a_killed_bakeoff_leaves_no_descendant(tmp_path: Path, ghosts: list[str]) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from harness.engine.process import EngineProcess\n"
        f"log = Path({str(tmp_path / 'engine.log')!r})\n"
        f"EngineProcess('g', {ghosts!r}, {{}}, log_path=log).start()\n"
        "time.sleep(600)"
    )
    bakeoff = subprocess.Popen([sys.executable, "-c", program])
    pids = ghost_pids(tmp_path)
    bakeoff.kill()
    bakeoff.wait()
    took_s = until(lambda: not any(map(is_alive, pids.values())))
    assert took_s < 10.0


def test_death_of_the_engine_is_seen_with_its_signal_and_time(
    tmp_path: Path, ghosts: list[str]
) -> None:
    with EngineProcess("ghosts", ghosts, {}, log_path=tmp_path / "engine.log") as process:
        pids = ghost_pids(tmp_path)
        assert process.poll() is None
        killed_s = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: process.poll() is not None)
        status = process.poll()
        assert status is not None
        assert (status.code, status.signal) == (None, 9)
        assert 0 <= status.at_s - killed_s < 0.5
        text = str(process.died_error(status, zero_s=status.at_s - 0.45))
        assert "the server ended with signal 9 (SIGKILL) at 0.45 s" in text
        until(lambda: not any(map(is_alive, pids.values())))


def test_an_engine_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    code = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("up", flush=True)
        time.sleep(600)
    """
    process = engine(tmp_path, code, stop_timeout_s=2.0).start()
    until(lambda: process.log_tail() == "up")
    start_s = time.monotonic()
    status = process.stop()
    assert status is not None
    assert status.signal == 9
    assert 1.0 <= time.monotonic() - start_s < 2.5
    assert process.stop() is status  # again: nothing to do


def test_signals_of_the_terminal_reach_neither_keeper_nor_engine(tmp_path: Path) -> None:
    process = engine(tmp_path, "import time; time.sleep(600)").start()
    keeper = psutil.Process(process.pid).ppid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(keeper, number)
    time.sleep(0.2)
    assert process.poll() is None
    assert os.getsid(process.pid) == process.pid
    status = process.stop()
    assert status is not None
    assert status.signal == 15  # default handling is given back to the engine


def test_exit_code_and_last_words(tmp_path: Path) -> None:
    code = """
        import sys
        print("loading", flush=True)
        sys.stderr.buffer.write(b"no such model \\xff\\n")
        sys.exit(3)
    """
    (tmp_path / "engine.log").write_text("an older line\n")
    with engine(tmp_path, code) as process:
        until(lambda: process.poll() is not None)
        status = process.poll()
    assert status is not None
    assert (status.code, str(status)) == (3, "exit code 3")
    assert process.log_tail().startswith("an older line\nloading\n")
    assert process.log_tail(1) == "no such model \ufffd"


def test_a_missing_program_is_a_config_error(tmp_path: Path) -> None:
    process = EngineProcess("vllm", ["/nowhere/python"], {}, log_path=tmp_path / "engine.log")
    with pytest.raises(ConfigError) as caught:
        process.start()
    assert str(caught.value) == (
        "engine=vllm: '/nowhere/python' cannot be started: No such file or directory; "
        "run: bakeoff engines install vllm"
    )


def test_a_killed_keeper_is_noticed_and_the_engine_still_ended(tmp_path: Path) -> None:
    process = engine(tmp_path, "import time; time.sleep(600)").start()
    pid = process.pid
    os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
    until(lambda: process.poll() is not None)
    assert str(process.poll()) == "an unknown status"
    process.stop()
    assert not is_alive(pid)


def test_the_first_failure_is_the_one_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="first"), engine(tmp_path, "import time; time.sleep(9)"):
        raise ValueError("first")


def test_the_engine_gets_our_environment_without_our_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("KEPT", "1")
    argv = [
        sys.executable,
        "-c",
        "import os; print(*(os.environ.get(k) for k in ('PYTHONPATH', 'KEPT', 'OWN')))",
    ]
    with EngineProcess("e", argv, {"OWN": "2"}, log_path=tmp_path / "engine.log") as process:
        until(lambda: process.poll() is not None)
    assert process.log_tail() == "None 1 2"
