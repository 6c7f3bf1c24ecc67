"""A load that local workers share: who plays what, what is left when one of the processes dies."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import pytest

from harness.config import EngineConf, LaunchMode, ModelConf
from harness.errors import ConfigError, InvalidRunError, StoreWriteError
from harness.load.calls import PlannedCalls
from harness.load.decode import Decoded, JournalDecoder, PlayedLevel
from harness.load.driver import LoadProcess
from harness.load.gather import gather
from harness.load.job import LevelJob
from harness.registry import open_adapter
from harness.testing.played import WrittenLoad, closed, write_job
from harness.testing.scripted import Script, ScriptedServer
from harness.types import ErrorClass, TokensSource

ENGINE, MODEL = EngineConf(name="openai"), ModelConf(name="m")
SETTINGS = {
    "engine": msgspec.to_builtins(ENGINE),
    "model": msgspec.to_builtins(MODEL),
    "mode": "attach",
    "workers": 2,
}
PATH = "/v1/completions"


def chunk(content: bytes) -> bytes:
    data = b"data: " + content + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def text(word: str) -> bytes:
    return chunk(b'{"choices":[{"index":0,"text":"%s","finish_reason":null}]}' % word.encode())


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = (
    chunk(b'{"choices":[{"index":0,"text":"","finish_reason":"length"}]}')
    + chunk(b"[DONE]")
    + b"0\r\n\r\n"
)
SCRIPTS: Mapping[str, Script] = {PATH: (HEAD, text("ab"), 0.02, text("cde"), END)}


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(SCRIPTS) as running:
        yield running


class Shared(NamedTuple):
    """What came of a load that workers shared."""

    decoded: Decoded
    events: list[Mapping[str, Any]]


def write(folder: Path, port: int, levels: list[LevelJob], **settings: Any) -> WrittenLoad:
    count = max(level.first + level.count for level in levels)
    due_s = [0.02 * index for index in range(count)]
    return write_job(folder, port, [PATH] * count, levels, due_s=due_s, **{**SETTINGS, **settings})


def gathered(written: WrittenLoad, *, count_tokens: Any = None) -> Decoded:
    adapter = open_adapter(ENGINE, MODEL, LaunchMode.ATTACH)
    planned = PlannedCalls(written.folder)
    levels = [
        PlayedLevel(name=level.name, shape="users", is_warmup=level.is_warmup, planned=level.count)
        for level in written.levels.levels
    ]
    return gather(
        written.folder,
        levels=levels,
        block=3,
        count_tokens=count_tokens,
        decoder=lambda worker: JournalDecoder(
            adapter=adapter, block=3, planned=planned.planned, levels=levels, worker=worker
        ),
    )


def play(written: WrittenLoad, load: LoadProcess, **questions: Any) -> list[Mapping[str, Any]]:
    events: list[Mapping[str, Any]] = []
    asked = {"should_abort": lambda: False, **questions}
    load.open(written.job, written.folder / "job.json")
    load.play(written.levels, written.folder / "levels.json", on_event=events.append, **asked)
    load.close()
    return events


def workers_of(load: LoadProcess) -> list[psutil.Process]:
    """The worker processes of a load child, by their place."""
    children = psutil.Process(load.pid).children()
    workers = [one for one in children if "harness.load.worker" in one.cmdline()]
    return sorted(workers, key=lambda one: int(one.cmdline()[-1]))


def are_gone(processes: list[psutil.Process], limit_s: float = 10.0) -> bool:
    gone, alive = psutil.wait_procs(processes, timeout=limit_s)
    return bool(gone) and not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


class Killer:
    """Kills a process, once, when the server has seen so many requests more than now."""

    def __init__(self, server: ScriptedServer, after: int) -> None:
        self._server = server
        self._limit = len(server.seen) + after
        self.killed_s: float | None = None
        self.victims: list[psutil.Process] = []

    def kill(self, load: LoadProcess, place: int | None) -> bool:
        if self.killed_s is None and len(self._server.seen) >= self._limit:
            time.sleep(0.5)  # more than a flush
            self.victims = workers_of(load)
            pid = load.pid if place is None else self.victims[place].pid
            os.kill(pid, signal.SIGKILL)
            self.killed_s = time.monotonic()
        return False


def test_every_call_is_played_once_and_nothing_is_lost_between_two(
    tmp_path: Path, server: ScriptedServer
) -> None:
    levels = [
        closed("warm-up", 0, 4, 2, is_warmup=True),
        LevelJob(number=1, name="open", first=4, count=21, duration_s=0.6),
        closed("closed", 25, 30, 5),
        closed("one user", 55, 3, 1),
    ]
    written = write(tmp_path, server.port, levels)
    with LoadProcess() as load:
        events = play(written, load)
    assert [e["name"] for e in events if e["event"] == "level"] == [one.name for one in levels]
    decoded = gathered(written)
    assert [record.index for record in decoded.records] == list(range(58))
    assert Counter(r.level for r in decoded.records) == {-1: 4, 0: 21, 1: 30, 2: 3}
    assert {record.error for record in decoded.records} == {None}
    assert {r.worker for r in decoded.records if r.level < 2} == {0, 1}
    assert [r.worker for r in decoded.records if r.level == 0] == [0, 1] * 10 + [0]
    for record in decoded.records:
        assert record.sent_s is not None
        assert record.due_s <= record.sent_s < record.chunk_s[0] < record.chunk_s[1]
        assert 0.02 <= record.chunk_s[1] - record.chunk_s[0] < 0.5
        assert (record.block, record.http_status, record.finish_reason) == (3, 200, "length")
    opened, users, single = decoded.levels
    assert opened.window_end_s - opened.window_start_s == pytest.approx(0.6, abs=1e-6)
    due_s = [r.due_s - opened.window_start_s for r in decoded.records if r.level == 0]
    assert due_s == pytest.approx([0.02 * index for index in range(4, 25)], abs=1e-6)
    assert {r.user for r in decoded.records if r.level == 1} == {0, 1, 2, 3, 4}
    assert not any(level.is_cut or level.exhausted for level in decoded.levels)
    for level in (opened, users, single):
        assert level.client is not None
        assert (level.client.workers, level.client.workers_lost) == (2, 0)
    assert users.client is not None
    assert 2 <= users.client.peak_in_flight <= 5
    assert users.client.cpu_s


def test_tokens_that_the_server_does_not_count_are_counted_where_the_tokenizer_is(
    tmp_path: Path, server: ScriptedServer
) -> None:
    written = write(tmp_path, server.port, [closed("one", 0, 4, 2)])
    with LoadProcess() as load:
        play(written, load)
    by_chunks = gathered(written).records
    assert {(r.output_tokens, r.tokens_source) for r in by_chunks} == {(2, TokensSource.CHUNKS)}
    by_letters = gathered(written, count_tokens=len).records
    assert {(r.output_tokens, r.tokens_source) for r in by_letters} == {(5, TokensSource.TOKENIZER)}


def test_a_killed_worker_is_said_and_what_it_had_measured_is_kept(
    tmp_path: Path, server: ScriptedServer
) -> None:
    levels = [
        closed("first", 0, 4, 2),
        LevelJob(number=1, name="open", first=4, count=150, duration_s=3.0),
    ]
    written = write(tmp_path, server.port, levels)
    killer = Killer(server, 20)
    with LoadProcess() as load:
        pid = None
        events = play(written, load, should_abort=lambda: killer.kill(load, 1))
        pid = killer.victims[1].pid
    (lost,) = [event for event in events if event["event"] == "worker_lost"]
    assert lost["worker"] == 1
    assert lost["message"] == (f"worker 2 (pid {pid}) ended with -9 during open; the others go on")
    decoded = gathered(written)
    first, opened = decoded.levels
    assert first.client is not None
    assert opened.client is not None
    assert (first.client.workers_lost, opened.client.workers_lost) == (0, 1)
    assert not opened.is_cut  # the other worker came to its end
    assert opened.window_end_s - opened.window_start_s == pytest.approx(3.0, abs=1e-6)
    by_worker = [[r for r in decoded.records if r.level == 1 and r.worker == w] for w in (0, 1)]
    assert [r.index for r in by_worker[0]] == list(range(4, 150, 2))  # due before 3 s
    assert {r.error for r in by_worker[0]} == {None}
    assert len(by_worker[1]) >= 10
    assert {r.error for r in by_worker[1]} <= {None, ErrorClass.WORKER_LOST}
    assert sum(r.error is None for r in by_worker[1]) >= 10
    indices = [r.index for r in decoded.records]
    assert len(indices) == len(set(indices))


def test_no_level_is_played_without_all_workers(tmp_path: Path, server: ScriptedServer) -> None:
    levels = [closed("long", 0, 200, 4, duration_s=2.0), closed("after", 200, 4, 2)]
    written = write(tmp_path, server.port, levels)
    killer = Killer(server, 10)
    expected = r"worker 1 \(pid \d+\) ended with -9; 1 level of this load could not be played"
    with LoadProcess() as load, pytest.raises(InvalidRunError, match=expected):
        play(written, load, should_abort=lambda: killer.kill(load, 0))
    assert are_gone(killer.victims)
    decoded = gathered(written)
    assert [level.name for level in decoded.levels] == ["long"]
    assert {r.worker for r in decoded.records} == {0, 1}


def test_a_killed_master_takes_its_workers_along_and_leaves_their_journals(
    tmp_path: Path, server: ScriptedServer
) -> None:
    levels = [closed("first", 0, 4, 2), closed("long", 4, 400, 4, duration_s=30.0)]
    written = write(tmp_path, server.port, levels)
    killer = Killer(server, 12)
    with LoadProcess() as load, pytest.raises(InvalidRunError, match="ended with signal 9"):
        play(written, load, should_abort=lambda: killer.kill(load, None))
    assert are_gone(killer.victims)
    decoded = gathered(written)
    first, long = decoded.levels
    assert (first.is_cut, long.is_cut) == (False, True)
    assert long.client is not None
    assert (long.client.workers, long.client.workers_lost) == (2, 2)
    assert long.window_end_s > long.window_start_s
    errors = Counter(r.error for r in decoded.records if r.level == 1)
    assert errors[None] >= 4
    assert set(errors) <= {None, ErrorClass.WORKER_LOST}
    assert {r.worker for r in decoded.records if r.level == 1} == {0, 1}


def test_a_worker_that_is_late_to_notice_its_masters_end_leaves_no_pipe_open(
    tmp_path: Path, server: ScriptedServer
) -> None:
    written = write(tmp_path, server.port, [closed("long", 0, 400, 4, duration_s=30.0)])
    stopped: list[psutil.Process] = []

    def end_master_before_a_worker_can_see_it() -> bool:
        if not stopped and len(workers_of(load)) == 2:
            stopped.append(workers_of(load)[1])
            stopped[0].suspend()
            os.kill(load.pid, signal.SIGKILL)
        return False

    open_before = psutil.Process().num_fds()
    with LoadProcess() as load, pytest.raises(InvalidRunError, match="ended with signal 9"):
        play(written, load, should_abort=end_master_before_a_worker_can_see_it)
    (late,) = stopped
    assert late.is_running()
    late.resume()
    assert are_gone(stopped)
    end_s = time.monotonic() + 10.0
    while psutil.Process().num_fds() > open_before and time.monotonic() < end_s:
        time.sleep(0.01)
    assert psutil.Process().num_fds() <= open_before


PARENT = """
import sys
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


def test_a_killed_parent_takes_master_and_workers_along(
    tmp_path: Path, server: ScriptedServer
) -> None:
    written = write(tmp_path, server.port, [closed("long", 0, 4000, 4, duration_s=30.0)])
    written.job.write(tmp_path / "job.json")
    written.levels.write(tmp_path / "levels.json")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent:
        child = psutil.Process(int(parent.stdout.readline()))
        while b"level" not in parent.stdout.readline():
            assert parent.poll() is None
        time.sleep(0.6)
        processes = [child, *child.children()]
        assert len(processes) == 3
        parent.kill()
    assert are_gone(processes)
    records = gathered(written).records
    assert sum(record.error is None for record in records) >= 4


def test_a_search_that_has_seen_enough_ends_the_level_in_all_workers(
    tmp_path: Path, server: ScriptedServer
) -> None:
    levels = [LevelJob(number=0, name="open", first=0, count=1000, duration_s=20.0)]
    written = write(tmp_path, server.port, levels)
    limit = len(server.seen) + 20
    with LoadProcess() as load:
        play(written, load, should_stop=lambda: len(server.seen) >= limit)
    decoded = gathered(written)
    (level,) = decoded.levels
    assert level.is_cut
    assert level.window_end_s - level.window_start_s < 15.0
    assert {r.error for r in decoded.records} == {None}  # drained, not cut off
    assert {r.censored_s for r in decoded.records} == {None}
    assert 20 <= len(decoded.records) < 1000


def test_workers_can_be_given_further_levels(tmp_path: Path, server: ScriptedServer) -> None:
    written = write(tmp_path, server.port, [closed("a", 0, 6, 2), closed("b", 6, 8, 2)])
    first, second = written.levels.levels
    path = tmp_path / "levels.json"
    with LoadProcess() as load:
        load.open(written.job, tmp_path / "job.json")
        for level in (first, second):
            levels = written.levels.__class__(calls=written.levels.calls, levels=(level,))
            load.play(levels, path, on_event=lambda _: None, should_abort=lambda: False)
        load.close()
    assert [(r.index, r.level) for r in gathered(written).records] == [
        *((i, 0) for i in range(6)),
        *((i, 1) for i in range(6, 14)),
    ]


def test_a_journal_that_a_workers_disk_refuses_is_a_store_error(
    tmp_path: Path, server: ScriptedServer
) -> None:
    written = write(tmp_path, server.port, [closed("x", 0, 400, 2, duration_s=20.0)])
    (tmp_path / "journal.1.bin").symlink_to("/dev/full")
    with (
        LoadProcess() as load,
        pytest.raises(StoreWriteError, match=r"worker 2 .*journal.1.bin: cannot be written: No sp"),
    ):
        play(written, load)


def test_workers_that_do_not_come_are_asked_for_by_name(
    tmp_path: Path, server: ScriptedServer
) -> None:
    settings = {"remote_workers": 1, "worker_wait_s": 0.5, "master_bind": "127.0.0.1:0"}
    written = write(tmp_path, server.port, [closed("x", 0, 4, 2)], **settings)
    expected = (
        r"load.remote_workers=1: 0 joined within load.worker_wait_s=0.5; start the others with: "
        r"bakeoff worker --master 127.0.0.1:\d+"
    )
    with LoadProcess() as load, pytest.raises(ConfigError, match=expected):
        play(written, load)


def test_an_address_that_is_taken_is_named(tmp_path: Path, server: ScriptedServer) -> None:
    settings = {"remote_workers": 1, "master_bind": f"127.0.0.1:{server.port}"}
    written = write(tmp_path, server.port, [closed("x", 0, 4, 2)], **settings)
    with LoadProcess() as load, pytest.raises(ConfigError, match=r"load.master_bind=127.0.0.1:"):
        play(written, load)


EARLY = """
import sys
from pathlib import Path
from harness.load.distributed import crew, member, messages
from harness.load.distributed.handed_over import HandedOver
from harness.load.job import read_job

class Link:
    port = 1
    def __init__(self, host, port, receive):
        Link.receive = receive
    def send(self, name, data):
        print(name, getattr(messages.decoded(data), "worker", "refused"), flush=True)

def start(self, master):
    hello = messages.Hello(version=messages.our_version(), host="elsewhere", pid=1)
    Link.receive("early", messages.encoded(hello))

crew.MasterLink, member.Member.start = Link, start
folder = Path(sys.argv[1])
job, files = read_job(folder / "job.json"), HandedOver(folder=folder)
crew.Workers(job, files, say=lambda **_: None, on_message=lambda *_: None)
"""


def test_a_worker_that_joins_while_ours_are_started_takes_none_of_their_places(
    tmp_path: Path, server: ScriptedServer
) -> None:
    settings = {"workers": 3, "remote_workers": 1, "master_bind": "127.0.0.1:0"}
    written = write(tmp_path, server.port, [closed("x", 0, 4, 2)], **settings)
    written.job.write(tmp_path / "job.json")
    command = [sys.executable, "-c", EARLY, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[0] == "early 2"
