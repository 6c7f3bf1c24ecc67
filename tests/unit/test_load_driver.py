"""The parent's side of the load process: early start, events, abort, interrupts, deaths."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from harness.errors import BakeoffError, ConfigError, InvalidRunError, StoreWriteError
from harness.load.driver import LoadProcess
from harness.load.job import LevelsJob, Target, read_job, read_levels
from harness.load.journal import Kind, json_payload
from harness.testing.played import closed, play_job, read_played, write_job
from harness.testing.scripted import Script, ScriptedServer, Step
from harness.types import ClientFacts

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
SCRIPTS: Mapping[str, Script] = {
    "/fast": (ANSWER,),
    "/silent": (Step.HANG,),
    "/slow": (0.05, ANSWER),
}
LONG = closed("long", 0, 400, 2, think_s=30.0, duration_s=60.0)


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(SCRIPTS) as running:
        yield running


def seconds_gone(pid: int, limit_s: float = 10.0) -> float:
    """How long a process still lived; fails if it outlives the limit."""
    start_s = time.monotonic()
    while time.monotonic() < start_s + limit_s:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                break
        except psutil.NoSuchProcess:
            break
        time.sleep(0.02)
    else:
        pytest.fail(f"process {pid} still runs after {limit_s} s")
    return time.monotonic() - start_s


def test_a_job_survives_its_file(tmp_path: Path) -> None:
    job = write_job(tmp_path, 80, ["/fast"], [LONG], settle_s=0.5)
    job.job.write(tmp_path / "job.json")
    assert read_job(tmp_path / "job.json") == job.job
    job.levels.write(tmp_path / "levels.json")
    assert read_levels(tmp_path / "levels.json").levels == (LONG,)


def test_events_come_in_order_and_the_child_is_gone_afterwards(
    tmp_path: Path, server: ScriptedServer
) -> None:
    level = closed("one", 0, 1, 1)
    load = LoadProcess()
    pid = load.pid
    played = play_job(write_job(tmp_path, server.port, ["/fast"], [level]), load=load)
    assert played.events == (
        {"event": "ready", "pid": pid},
        {"event": "level", "level": 0, "name": "one"},
        {"event": "played"},
    )
    assert not psutil.pid_exists(pid)
    assert played.entries[0].kind == Kind.OPEN
    assert played.entries[0].t_s == played.zero_s


def test_abort_ends_at_once_and_keeps_what_was_measured(
    tmp_path: Path, server: ScriptedServer
) -> None:
    after = closed("after", 2, 1, 1)
    paths = ["/fast", "/silent", "/fast"]
    level = closed("long", 0, 2, 2, think_s=30.0, duration_s=60.0)
    job = write_job(tmp_path, server.port, paths, [level, after], request_timeout_s=60.0)
    begun: list[float] = []

    def both_sent() -> bool:
        if [seen.path for seen in server.seen[-2:]].count("/silent") and not begun:
            time.sleep(0.1)
            begun.append(time.monotonic())
        return bool(begun)

    played = play_job(job, should_abort=both_sent)
    assert time.monotonic() - begun[0] < 2.0
    assert played.reason(0) == "complete"
    assert played.reason(1) == "cut off"
    assert sorted(e.request for e in played.of(Kind.DUE)) == [0, 1]
    level_row = played.level(0)  # the level's end is told, so that its window is known
    assert level_row["window_end_s"] < begun[0] + 2.0
    assert [e["name"] for e in played.events if e["event"] == "level"] == ["long"]


def test_an_interrupt_closes_the_journal_before_it_goes_on(
    tmp_path: Path, server: ScriptedServer
) -> None:
    job = write_job(tmp_path, server.port, ["/fast"] * 400, [LONG])

    before = len(server.seen)

    def interrupt() -> bool:
        if len(server.seen) < before + 2:
            return False
        time.sleep(0.1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play_job(job, should_abort=interrupt)
    played = read_played(job)
    assert played.reason(0) == "complete"
    assert played.level(0)["played"] == 2


def test_a_killed_child_is_an_error_with_its_reason(tmp_path: Path, server: ScriptedServer) -> None:
    job = write_job(tmp_path, server.port, ["/slow"] * 400, [closed("x", 0, 400, 1)])
    before = len(server.seen)
    with LoadProcess() as load:

        def kill() -> bool:
            if len(server.seen) > before:
                time.sleep(0.4)  # more than a flush
                os.kill(load.pid, signal.SIGKILL)
            return False

        def play() -> None:
            play_job(job, load=load, should_abort=kill)

        with pytest.raises(InvalidRunError, match="the load process ended with signal 9"):
            play()
    played = read_played(job)
    assert len(played.of(Kind.END)) >= 1  # what was flushed is there
    assert played.of(Kind.LEVEL) == []
    (begin,) = played.of(Kind.LEVEL_BEGIN)  # so that the level has a row nevertheless
    assert (int(begin.extra), json_payload(begin)) == (0, {"name": "x"})
    assert begin.t_s <= min(entry.t_s for entry in played.of(Kind.DUE))


def test_enough_seen_closes_the_window_and_drains_what_is_under_way(
    tmp_path: Path, server: ScriptedServer
) -> None:
    paths = ["/slow"] * 1000
    levels = [closed("seen", 0, 998, 2, duration_s=60.0), closed("after", 998, 2, 1)]
    job = write_job(tmp_path, server.port, paths, levels)
    limit = len(server.seen) + 6
    asked: list[float] = []

    def enough() -> bool:
        if len(server.seen) >= limit and not asked:
            asked.append(time.monotonic())
            return True
        return False

    played = play_job(job, should_stop=enough)
    seen = played.level(0)
    assert seen["is_cut"]
    assert not seen["exhausted"]
    assert 6 <= seen["played"] < 900
    assert asked[0] <= seen["window_end_s"] < asked[0] + 2.0
    assert max(e.t_s for e in played.of(Kind.DUE) if e.extra == 0) <= seen["window_end_s"]
    assert {e.payload for e in played.of(Kind.END)} == {b"complete"}  # none was cut off
    assert (played.level(1)["played"], played.level(1)["is_cut"]) == (2, False)


def test_levels_can_be_played_as_they_are_found(tmp_path: Path, server: ScriptedServer) -> None:
    paths = ["/fast"] * 12
    job = write_job(tmp_path, server.port, paths, [closed("a", 0, 4, 1), closed("b", 4, 8, 1)])
    before = server.connections
    with LoadProcess() as load:
        load.open(job.job, tmp_path / "job.json")
        for level in job.levels.levels:
            one = LevelsJob(calls=job.levels.calls, levels=(level,))
            load.play(
                one, tmp_path / "one.json", on_event=lambda _: None, should_abort=lambda: False
            )
            assert read_played(job).level(level.number)["played"] == level.count  # told by now
        load.close()
    assert server.connections == before + 1  # one client for all of them
    assert len(read_played(job).of(Kind.OPEN)) == 1


def test_what_the_client_saw_of_itself_is_told_with_each_level(
    tmp_path: Path, server: ScriptedServer
) -> None:
    levels = [closed("two", 0, 8, 2), closed("one", 8, 4, 1)]
    played = play_job(write_job(tmp_path, server.port, ["/slow"] * 12, levels))
    two, one = (msgspec.convert(played.level(i)["client"], ClientFacts) for i in (0, 1))
    assert (two.connects, one.connects) == (2, 0)
    assert (two.peak_in_flight, one.peak_in_flight) == (2, 1)
    for facts in (two, one):
        assert facts.cpu_s is not None
        assert 0 < facts.cpu_s < 5.0
        assert facts.stall_p99_s is not None
        assert facts.stall_max_s is not None
        assert 0 <= facts.stall_p99_s <= facts.stall_max_s < 5.0
        assert 0 <= facts.clock_step_s < 1.0
        assert (facts.retries, facts.workers, facts.workers_lost) == (0, 1, 0)


def test_a_host_that_is_not_known_is_named(tmp_path: Path, server: ScriptedServer) -> None:
    target = Target(host="nowhere.invalid", port=80)
    job = write_job(tmp_path, server.port, ["/fast"], [LONG], target=target)
    with pytest.raises(ConfigError, match=r"launch.base_url: .* nowhere.invalid is not known"):
        play_job(job)


def test_the_childs_last_words_are_in_the_error(tmp_path: Path, server: ScriptedServer) -> None:
    job = write_job(tmp_path, server.port, ["/fast"], [LONG])
    (tmp_path / "calls.bin").unlink()
    with pytest.raises(BakeoffError, match="the load process ended with 1: FileNotFoundError: "):
        play_job(job)


def test_a_refused_journal_is_a_store_error(tmp_path: Path, server: ScriptedServer) -> None:
    level = closed("x", 0, 4000, 1, duration_s=30.0)
    job = write_job(tmp_path, server.port, ["/slow"] * 4000, [level])
    Path(job.journal).symlink_to("/dev/full")
    with pytest.raises(StoreWriteError, match=r"journal.bin: cannot be written: No space left"):
        play_job(job)


def test_a_job_file_that_cannot_be_written_is_a_store_error(
    tmp_path: Path, server: ScriptedServer
) -> None:
    job = write_job(tmp_path, server.port, ["/fast"], [LONG])
    with LoadProcess() as load, pytest.raises(StoreWriteError, match="No such file"):
        load.open(job.job, tmp_path / "no" / "j")


def test_words_on_standard_output_that_are_no_events_do_no_harm(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('a library speaks')\nprint('[1]')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    level = closed("one", 0, 1, 1)
    played = play_job(write_job(tmp_path, server.port, ["/fast"], [level]))
    assert [e["event"] for e in played.events] == ["ready", "level", "played"]


def test_the_end_of_input_ends_a_child_that_plays(tmp_path: Path, server: ScriptedServer) -> None:
    job = write_job(tmp_path, server.port, ["/fast"] * 400, [LONG])
    job.job.write(tmp_path / "job.json")
    job.levels.write(tmp_path / "levels.json")
    child = subprocess.Popen(
        [sys.executable, "-m", "harness.load.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        lines = f"open {tmp_path / 'job.json'}\nplay {tmp_path / 'levels.json'}\n"
        child.stdin.write(lines.encode())
        child.stdin.flush()
        while b'"level"' not in child.stdout.readline():
            assert child.poll() is None
        child.stdin.close()
        assert child.wait(timeout=5.0) == 1


def test_an_unused_child_ends_with_its_context() -> None:
    with LoadProcess() as load:
        pid = load.pid
    assert seconds_gone(pid) < 5.0
    assert threading.active_count() < 50


PARENT = """
import sys, time
from pathlib import Path
from harness.load.driver import LoadProcess
from harness.load.job import read_job, read_levels
load = LoadProcess()
print(load.pid, flush=True)
folder = Path(sys.argv[1])
load.open(read_job(folder / "job.json"), folder / "job.again")
load.play(read_levels(folder / "levels.json"), folder / "levels.again",
          on_event=lambda e: print(e, flush=True), should_abort=lambda: False)
"""


def test_a_killed_parent_takes_the_child_with_it(tmp_path: Path, server: ScriptedServer) -> None:
    job = write_job(tmp_path, server.port, ["/fast"] * 400, [LONG])
    job.job.write(tmp_path / "job.json")
    job.levels.write(tmp_path / "levels.json")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent:
        pid = int(parent.stdout.readline())
        while b"level" not in parent.stdout.readline():
            assert parent.poll() is None
        assert psutil.pid_exists(pid)
        parent.kill()
    assert seconds_gone(pid) < 5.0


def test_the_child_ignores_ctrl_c_since_the_parent_decides(
    tmp_path: Path, server: ScriptedServer
) -> None:
    level = closed("one", 0, 4, 1)

    def on_event(event: Mapping[str, Any]) -> None:
        if event["event"] == "level":
            os.kill(load.pid, signal.SIGINT)

    load = LoadProcess()
    job = write_job(tmp_path, server.port, ["/slow"] * 4, [level])
    played = play_job(job, load=load, on_event=on_event)
    assert [played.reason(request) for request in range(4)] == ["complete"] * 4
