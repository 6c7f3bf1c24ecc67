"""Workers through the real command line: on this machine, and on hosts of their own (name spaces).

A network name space has its own addresses, its own loopback and no way to the other but a virtual
cable: what reaches the server from there is another host to it.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.engine.ports import free_port
from harness.store import StoredRun, open_runs
from harness.testing.command_line import PROGRAM, CommandLine

pytestmark = pytest.mark.timeout(300)

FAKE_SERVER = Path(__file__).with_name("fake_llama_server.py")
ADDRESSES = ("10.213.77.1", "10.213.77.2")
PORT, MASTER_PORT = 8077, 5577
MASTER = f"{ADDRESSES[0]}:{MASTER_PORT}"
LOAD = [
    "engine=openai",
    "engine.route=chat",
    "launch=attach",
    f"launch.base_url=http://{ADDRESSES[0]}:{PORT}",
    "launch.allow_remote=true",
    "model=file",
    "model.name=anything",
    "model.served_name=x",
    "scenario=fixed",
    "scenario.input_tokens=24",
    "scenario.output_tokens=8",
    "load.settle_s=0.05",
    "load.workers=2",
    "load.remote_workers=1",
    f"load.master_bind={MASTER}",
    "load.worker_wait_s=60",
    "validity.max_lag_s=1",
]
SERVER = f"""
import time
from harness.testing.talking import TalkingServer
with TalkingServer(host={ADDRESSES[0]!r}, port={PORT}, answer_s=0.05) as server:
    print("ready", flush=True)
    while True:
        time.sleep(0.1)
"""


class Hosts(NamedTuple):
    """Two name spaces, and the command line in each: the run's and the worker's."""

    names: tuple[str, str]
    run: CommandLine
    worker: CommandLine


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def names() -> Iterator[tuple[str, str]]:
    """Two network name spaces joined by a cable; skips where they may not be made."""
    if shutil.which("ip") is None:
        pytest.skip("network name spaces need the `ip` command (iproute2)")
    if os.geteuid() != 0:
        pytest.skip("network name spaces can be made by root only")
    both = (f"bakeoff-a{os.getpid()}", f"bakeoff-b{os.getpid()}")
    try:
        for name in both:
            ip("netns", "add", name)
        ends = (f"bka{os.getpid()}", f"bkb{os.getpid()}")
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for name, end, address in zip(both, ends, ADDRESSES, strict=True):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        for name in both:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        pytest.skip(f"network name spaces are not allowed here: {error.stderr.strip()}")
    yield both
    for name in both:
        ip("netns", "del", name)


@pytest.fixture(scope="module")
def server(names: tuple[str, str]) -> Iterator[None]:
    """A chat server in the first name space."""
    command = ["ip", "netns", "exec", names[0], sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.kill()


Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts a command of a command line; what still runs at the end of the test is killed."""
    begun: list[subprocess.Popen[str]] = []

    def start(program: CommandLine, *arguments: str) -> "subprocess.Popen[str]":
        begun.append(program.start(*arguments))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def hosts(names: tuple[str, str], server: None, tmp_path: Path, cache: Path) -> Hosts:
    run, worker = (
        CommandLine(
            cwd=tmp_path,
            env={"BAKEOFF_CACHE": str(cache)},
            program=("ip", "netns", "exec", name, *PROGRAM),
        )
        for name in names
    )
    return Hosts(names, run, worker)


def the_run(folder: Path) -> StoredRun:
    (run,) = open_runs(folder / "results").runs
    return run


def measured(run: StoredRun) -> list[dict[str, object]]:
    return [row for row in run.requests().to_pylist() if row["phase"] == "measure"]


def test_a_worker_on_another_host_plays_its_share(
    hosts: Hosts, begin: Begin, tmp_path: Path
) -> None:
    levels = "[{users: 4, requests: 40}, {shape: constant, rate_rps: 20, duration_s: 2}]"
    started = begin(hosts.run, "run", *LOAD, "load=levels", f"load.levels={levels}", "name=two")
    worker = hosts.worker("worker", "--master", MASTER, "--wait-s", "200")
    out, err = started.communicate(timeout=200)
    assert started.returncode == 0, err + out
    assert worker.code == 0, worker.err
    assert worker.out.splitlines()[:2] == [
        f"waiting for a master at {MASTER}",
        f"joined {MASTER} as worker 2 of 2",
    ]
    run = the_run(tmp_path)
    rows = measured(run)
    assert sorted(Counter((row["level"], row["worker"]) for row in rows).items()) == [
        ((0, 0), 20),
        ((0, 1), 20),
        ((1, 0), 20),
        ((1, 1), 20),
    ]
    assert {row["error"] for row in rows} == {None}
    assert len({row["index"] for row in rows}) == 80
    for level in run.info.levels:
        assert level.client is not None
        assert (level.client.workers, level.client.workers_lost) == (2, 0)
    opened = run.info.levels[1]
    for row in rows:  # two clocks, one time: every arrival is where the plan has it
        if row["level"] == 1:
            due_s = float(str(row["due_s"])) - opened.window_start_s
            place = round(due_s / 0.05)
            assert due_s == pytest.approx(0.05 * place, abs=0.02)


def test_a_killed_worker_on_another_host_makes_the_run_invalid(
    hosts: Hosts, begin: Begin, tmp_path: Path
) -> None:
    load = ["load=constant", "load.rate_rps=10", "load.duration_s=14", "load.requests=null"]
    started = begin(hosts.run, "run", *LOAD, *load, "name=lost")
    worker = begin(hosts.worker, "worker", "--master", MASTER, "--wait-s", "200")
    assert worker.stdout is not None
    while "playing constant" not in (line := worker.stdout.readline()):
        assert line, f"the worker ended before it played: {worker.communicate()[1]}"
    time.sleep(2.0)
    worker.kill()
    worker.communicate()
    out, err = started.communicate(timeout=200)
    assert started.returncode == 3, err + out
    assert "was not heard for 4 s during constant=10/s; the others go on" in err
    run = the_run(tmp_path)
    assert run.info.outcome == "invalid"
    assert run.info.levels[0].client is not None
    assert run.info.levels[0].client.workers_lost == 1
    rows = measured(run)
    kept = [row for row in rows if row["worker"] == 0]
    lost = [row for row in rows if row["worker"] == 1]
    assert len(kept) == 70
    assert {row["error"] for row in kept} == {None}
    assert lost
    assert {row["error"] for row in lost} == {"worker_lost"}


def test_a_killed_run_ends_its_worker_on_the_other_host(hosts: Hosts, begin: Begin) -> None:
    load = ["load=users", "load.users=2", "load.duration_s=60", "load.requests=null"]
    started = begin(hosts.run, "run", *LOAD, *load, "name=killed")
    worker = begin(hosts.worker, "worker", "--master", MASTER, "--wait-s", "200")
    assert worker.stdout is not None
    while "playing users" not in (line := worker.stdout.readline()):
        assert line, f"the worker ended before it played: {worker.communicate()[1]}"
    os.kill(started.pid, signal.SIGKILL)
    started.communicate()
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 3
    assert f"{MASTER}: the master is gone, not heard for 10 s" in err
    assert "Traceback" not in err


def test_an_interrupted_worker_ends_cleanly(hosts: Hosts, begin: Begin) -> None:
    load = ["load=users", "load.users=2", "load.duration_s=8", "load.requests=null"]
    started = begin(hosts.run, "run", *LOAD, *load, "name=interrupted")
    worker = begin(hosts.worker, "worker", "--master", MASTER, "--wait-s", "200")
    assert worker.stdout is not None
    while "playing users" not in (line := worker.stdout.readline()):
        assert line, f"the worker ended before it played: {worker.communicate()[1]}"
    worker.send_signal(signal.SIGINT)
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 130, err
    assert "Traceback" not in err
    _, err = started.communicate(timeout=100)
    assert started.returncode == 3, err
    assert "ended: interrupted" in err


def test_a_server_that_only_its_own_host_reaches_is_refused(hosts: Hosts, begin: Begin) -> None:
    local = ["launch.base_url=http://127.0.0.1:8078", "launch.allow_remote=false"]
    command = SERVER.replace(repr(ADDRESSES[0]), "'127.0.0.1'").replace(str(PORT), "8078")
    inside = ["ip", "netns", "exec", hosts.names[0], sys.executable, "-c", command]
    with subprocess.Popen(inside, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        started = begin(hosts.run, "run", *LOAD, *local, "load.users=2", "load.requests=8")
        worker = hosts.worker("worker", "--master", MASTER, "--wait-s", "200")
        _, err = started.communicate(timeout=100)
        server.kill()
    assert worker.code == 2
    assert "cannot reach 127.0.0.1:8078 (Connection refused)" in worker.err
    assert started.returncode == 2
    assert "give an address that every worker can reach" in err


def test_workers_of_one_machine_share_a_run(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    ended = bakeoff("run", *fake, "load.workers=2", "name=two")
    assert ended.code == 0, ended.err
    run = the_run(tmp_path)
    rows = measured(run)
    assert Counter(row["worker"] for row in rows) == {0: 10, 1: 10}
    assert {row["error"] for row in rows} == {None}
    assert {row["output_tokens"] for row in rows} == {8}


def test_a_master_that_is_not_there_is_said_in_a_sentence(bakeoff: CommandLine) -> None:
    port = free_port()
    ended = bakeoff("worker", "--master", f"127.0.0.1:{port}", "--wait-s", "1")
    assert ended.code == 2
    assert ended.lines == [
        (
            f"bakeoff: --master 127.0.0.1:{port}: no bakeoff master answers there within 1 s; "
            "start the run with load.remote_workers first, or wait longer with --wait-s"
        )
    ]


def test_what_is_no_master_is_no_master(bakeoff: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = bakeoff("worker", "--master", f"127.0.0.1:{port}", "--wait-s", "1")
    assert ended.code == 2
    assert "no bakeoff master answers there within 1 s" in ended.err


@pytest.mark.parametrize("address", ["5557", "host:", ":5557", "host:port", "host:70000"])
def test_an_address_that_is_none_is_refused(bakeoff: CommandLine, address: str) -> None:
    ended = bakeoff("worker", "--master", address)
    assert ended.code == 2
    assert ended.lines == [
        f"bakeoff: --master {address}: must be HOST:PORT, as load.master_bind of the run"
    ]


def test_a_waiting_worker_can_be_interrupted(bakeoff: CommandLine, begin: Begin) -> None:
    worker = begin(bakeoff, "worker", "--master", f"127.0.0.1:{free_port()}", "--wait-s", "60")
    assert worker.stdout is not None
    assert "waiting for a master at" in worker.stdout.readline()
    worker.send_signal(signal.SIGINT)
    _, err = worker.communicate(timeout=20)
    assert worker.returncode == 130, err
    assert "Traceback" not in err


OTHER_VERSION = """
import os, sys
import harness.load.distributed.messages as messages
messages.our_version = lambda: "9.8.7"
sys.argv = ["worker", sys.argv[1], "--wait-s", "30"]
from harness.load.worker import main
os._exit(main())  # as the module does
"""


def test_another_version_is_refused_by_both_names(
    bakeoff: CommandLine, begin: Begin, fake: list[str]
) -> None:
    port = free_port()
    shared = [
        "load.workers=2",
        "load.remote_workers=1",
        f"load.master_bind=127.0.0.1:{port}",
        "load.worker_wait_s=8",
    ]
    started = begin(bakeoff, "run", *fake, *shared)
    command = [sys.executable, "-c", OTHER_VERSION, f"127.0.0.1:{port}"]
    worker = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    _, err = started.communicate(timeout=100)
    assert worker.returncode == 2, worker.stderr
    for text in (worker.stderr, err):
        assert "bakeoff 9.8.7 on" in text
        assert "cannot work for a master of bakeoff" in text
    assert started.returncode == 2
    assert "load.remote_workers=1: 0 joined within load.worker_wait_s=8" in err
