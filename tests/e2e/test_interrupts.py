"""Ended from outside: Ctrl-C and SIGTERM keep what was measured, SIGKILL leaves nothing running."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.store import StoredRun, open_runs
from harness.testing.command_line import CommandLine
from harness.types import Outcome

pytestmark = pytest.mark.timeout(300)  # runs wait for one another on a machine

MARK = "BAKEOFF_TEST_MARK"


def until(check: Callable[[], bool], timeout_s: float) -> None:
    end_s = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end_s, "did not happen in time"
        time.sleep(0.05)


def marked(mark: str) -> dict[int, str]:
    """Live processes that carry the mark in their environment: pid to command line."""
    found = {}
    for process in psutil.process_iter():
        try:
            is_dead = process.status() == psutil.STATUS_ZOMBIE
            if not is_dead and process.environ().get(MARK) == mark:
                found[process.pid] = " ".join(process.cmdline())
        except psutil.Error:
            continue
    return found


def runs_in(folder: Path) -> list[StoredRun]:
    return list(open_runs(folder).runs) if any(folder.rglob("run.json")) else []


def journal_grows(store: Path, beyond_bytes: int) -> bool:
    """Whether a load is under way: its raw journal holds this much."""
    files = store.rglob(".*.part/raw/journal.bin")
    return any(file.stat().st_size > beyond_bytes for file in files)


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_ctrl_c_in_a_sweep_keeps_what_is_done_and_the_same_command_goes_on(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    """C81: three blocks; the interrupt comes in the last one; a finished run.json is then cut."""
    command = ("run", *fake, "load.requests=240", "repeats=3", "name=c81")
    folder = tmp_path / "results" / "c81"
    mark = {MARK: f"c81-{os.getpid()}"}
    process = bakeoff.start(*command, env=mark)
    try:
        until(lambda: len(runs_in(folder)) >= 2 and journal_grows(folder, 20_000), 90)
        assert any("fake_llama_server" in line for line in marked(mark[MARK]).values())
        process.send_signal(signal.SIGINT)
        code, err = end(process)
    finally:
        process.kill()
    assert code == 130
    assert "Traceback" not in err
    assert "Error executing job" not in err  # Hydra's own words
    assert "2 finished runs and what was measured of this one are kept in results/c81" in err
    assert "the same command goes on from there" in err
    until(lambda: not marked(mark[MARK]), 10)
    by_outcome = {run.folder.name: run.info.outcome for run in runs_in(folder)}
    assert sorted(by_outcome.values()) == [Outcome.INTERRUPTED, *[Outcome.OK] * 2]
    cut_off = next(run for run in runs_in(folder) if run.info.outcome is Outcome.INTERRUPTED)
    rows = cut_off.requests().to_pylist()
    ok = [row for row in rows if row["phase"] == "measure" and row["censored_s"] is None]
    assert ok  # measured before the interrupt, and kept
    assert {row["error"] for row in rows} == {None}
    assert len(cut_off.info.levels) == 1

    kept_run, cut_run = sorted(runs_in(folder), key=lambda run: run.info.block)[:2]
    damaged = cut_run.folder / "run.json"
    damaged.write_bytes(damaged.read_bytes()[:300])
    kept = (kept_run.folder / "run.json").read_bytes()
    again = bakeoff(*command)
    assert again.code == 0, again.err
    assert f"{damaged.relative_to(tmp_path)}: not valid JSON" in again.err
    assert "it will be measured again" in again.err
    whole = [run for run in open_runs(folder, strict=False).runs if run.info.outcome is Outcome.OK]
    assert sorted(run.info.block for run in whole) == [0, 1, 2]
    assert again.err.count("starting") == 2
    assert (kept_run.folder / "run.json").read_bytes() == kept  # never overwritten
    assert "1 runs were stored already" in again.err


def test_sigterm_acts_like_an_interrupt(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    """While the server is still loading its model."""
    mark = {MARK: f"polite-{os.getpid()}"}
    process = bakeoff.start("run", *fake, "engine.env.FAKE_READY_S=99", "name=term", env=mark)
    try:
        until(lambda: any(log.stat().st_size for log in tmp_path.rglob("engine.log")), 60)
        process.send_signal(signal.SIGTERM)
        code, err = end(process)
    finally:
        process.kill()
    assert code == 130
    assert "bakeoff: interrupted; 0 finished runs" in err
    assert "Traceback" not in err
    assert "Error executing job" not in err  # Hydra's own words
    until(lambda: not marked(mark[MARK]), 10)
    (run,) = runs_in(tmp_path)
    assert run.info.outcome is Outcome.INTERRUPTED
    assert run.info.ended_at is not None
    assert run.requests().num_rows == 0
    assert list(tmp_path.rglob("*.part")) == []


def log_says(store: Path, word: str) -> bool:
    return any(word in log.read_text() for log in store.rglob(".*.part/engine.log"))


PHASES: dict[str, tuple[dict[str, str], Callable[[Path], bool]]] = {
    "start": ({"FAKE_LISTEN_S": "60"}, lambda store: log_says(store, "starting")),
    "prefill": ({"FAKE_PREFILL_S": "60"}, lambda store: log_says(store, "prefill")),
    "stop": ({"FAKE_STOP_S": "60"}, lambda store: log_says(store, "stopping")),
}


@pytest.mark.parametrize("phase", PHASES)
def test_kill_9_in_any_phase_leaves_no_process_behind(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path, phase: str
) -> None:
    settings, is_there = PHASES[phase]
    env = {MARK: f"{phase}-{os.getpid()}", **settings}
    limits = ["engine.stop_timeout_s=90", "engine.ready_timeout_s=90"]
    process = bakeoff.start("run", *fake, *limits, "load.requests=4", "name=killed", env=env)
    try:
        until(lambda: is_there(tmp_path), 60)
        before = marked(env[MARK])
        process.kill()
        killed_s = time.monotonic()
        end(process)
    finally:
        process.kill()
    assert any("fake_llama_server.py" in line for line in before.values()), before
    until(lambda: not marked(env[MARK]), 10)
    assert time.monotonic() - killed_s < 10


def test_kill_9_while_tokens_come_leaves_no_process_behind(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    mark = {MARK: f"killed-{os.getpid()}"}
    process = bakeoff.start("run", *fake, "load.requests=9999", "name=killed", env=mark)
    try:
        until(lambda: journal_grows(tmp_path, 20_000), 60)
        before = marked(mark[MARK])
        process.kill()
        killed_s = time.monotonic()
        end(process)
    finally:
        process.kill()
    for part in ("harness.load.child", "keeper.py", "fake_llama_server.py"):
        assert any(part in line for line in before.values()), before
    until(lambda: not marked(mark[MARK]), 10)
    assert time.monotonic() - killed_s < 10
    journal = next(tmp_path.rglob("journal.bin"))
    assert journal.stat().st_size > 20_000  # the raw data are still there
    again = bakeoff("run", *fake, "load.requests=5", "name=killed")
    assert again.code == 0  # no lock, no port, no half-made folder is in the way
