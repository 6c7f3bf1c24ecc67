"""The client in its real process against servers that misbehave, over real loopback sockets."""

import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.load.job import LevelJob
from harness.load.journal import Kind
from harness.testing.played import Played, closed, play_job, write_job
from harness.testing.scripted import ScriptedServer, Step

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def sized(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return OK + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def piece(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def event(text: str) -> bytes:
    return piece(b'data: {"choices":[{"text":"%s"}]}\n\n' % text.encode())


SCRIPTS = {
    "/sized": (sized(b"{}"),),
    "/in-pieces": (sized(b"hello")[:20], 0.02, sized(b"hello")[20:], 0.0),
    "/chunked": (CHUNKED, event("a"), 0.03, event("b"), 0.03, END),
    "/interim": (b"HTTP/1.1 100 Continue\r\n\r\n", 0.02, sized(b"real")),
    "/interim-together": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + sized(b"real"),),
    "/redirect": (b"HTTP/1.1 302 Found\r\nLocation: /sized\r\nContent-Length: 0\r\n\r\n",),
    "/merged": (CHUNKED + b"".join(event(str(i)) for i in range(100)) + END,),
    "/until-close": (OK + b"\r\n", b"to the ", 0.02, b"end", Step.CLOSE),
    "/connection-close": (sized(b"{}", b"Connection: close"), Step.CLOSE),
    "/closes-when-idle": (sized(b"{}"), Step.CLOSE),
    "/trailing-bytes": (sized(b"{}") + b"rubbish",),
    "/reset-at-once": (Step.RESET,),
    "/reset-in-the-middle": (CHUNKED, event("a"), 0.05, Step.RESET),
    "/closed-in-the-middle": (CHUNKED, event("a"), 0.05, Step.CLOSE),
    "/garbage": (b"SSH-2.0-OpenSSH_9.9\r\n", Step.HANG),
    "/garbage-in-the-middle": (CHUNKED, event("a"), 0.05, b"not a chunk size\r\n", Step.HANG),
    "/silent": (Step.HANG,),
    "/silent-in-the-middle": (CHUNKED, event("a"), Step.HANG),
    "/deaf": (Step.DEAF,),
    "/upgrade": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", Step.HANG),
    "/steady": (CHUNKED, *(x for i in range(20) for x in (event(str(i)), 0.02)), END),
}
KIND = ["/sized", "/in-pieces", "/chunked", "/interim", "/interim-together", "/merged", "/redirect"]
CLOSING = ["/connection-close", "/sized", "/until-close", "/sized", "/trailing-bytes", "/sized"]
IDLE = ["/closes-when-idle", "/sized"]
HOSTILE = [
    "/reset-at-once",
    "/reset-in-the-middle",
    "/closed-in-the-middle",
    "/garbage",
    "/garbage-in-the-middle",
    "/silent",
    "/silent-in-the-middle",
    "/deaf",
    "/upgrade",
    "/steady",
    "/steady",
]
PATHS = [*KIND, *CLOSING, *IDLE, *HOSTILE]
FIRST_IDLE = len(KIND) + len(CLOSING)
FIRST_HOSTILE = FIRST_IDLE + len(IDLE)
TIMEOUT_S = 0.7


class Run(NamedTuple):
    played: Played
    server: ScriptedServer

    def number(self, path: str) -> int:
        return PATHS.index(path)

    def reason(self, path: str) -> str:
        return self.played.reason(self.number(path))

    def connection(self, path: str) -> int:
        return next(seen.connection for seen in self.server.seen if seen.path == path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    levels = (
        closed("kind", 0, len(KIND), 1),
        closed("closing", len(KIND), len(CLOSING), 1),
        closed("idle", FIRST_IDLE, len(IDLE), 1, think_s=0.1),
        LevelJob(number=3, name="hostile", first=FIRST_HOSTILE, count=len(HOSTILE)),
    )
    due_s = [None] * FIRST_HOSTILE + [0.0] * len(HOSTILE)
    with ScriptedServer(SCRIPTS) as server:
        job = write_job(
            tmp_path_factory.mktemp("client"),
            server.port,
            PATHS,
            levels,
            due_s=due_s,
            bodies={"/deaf": b"x" * 24_000_000},  # more than socket buffers hold
            request_timeout_s=TIMEOUT_S,
        )
        yield Run(play_job(job), server)


def test_every_request_ends_once_and_the_process_ends_well(run: Run) -> None:
    assert [e.request for e in run.played.of(Kind.DUE)] == list(range(len(PATHS)))
    assert sorted(e.request for e in run.played.of(Kind.END)) == list(range(len(PATHS)))
    assert run.played.events[-1] == {"event": "played"}
    assert [e["name"] for e in run.played.events if e["event"] == "level"] == [
        "kind",
        "closing",
        "idle",
        "hostile",
    ]


@pytest.mark.parametrize("path", [*KIND, "/connection-close", "/closes-when-idle", "/steady"])
def test_whole_answers_are_complete_and_kept_byte_for_byte(run: Run, path: str) -> None:
    assert run.reason(path) == "complete"
    sent = b"".join(step for step in SCRIPTS[path] if isinstance(step, bytes))
    assert run.played.body(run.number(path)) == sent


def test_one_connection_carries_what_follows_one_another(run: Run) -> None:
    assert {run.connection(path) for path in KIND} == {1}
    assert len([e for e in run.played.of(Kind.CONNECTED) if e.request < len(KIND)]) == 1


def test_a_read_is_journalled_with_the_stamp_of_its_arrival(run: Run) -> None:
    index = run.number("/chunked")
    reads = run.played.of(Kind.READ, index)
    assert b"".join(e.payload for e in reads) == run.played.body(index)
    assert len(reads) >= 3
    gap_s = reads[-1].t_s - reads[-2].t_s
    assert 0.025 < gap_s < 0.2
    assert all(0.0 <= e.extra < 1.0 for e in reads)
    (sent,) = run.played.of(Kind.SENT, index)
    assert sent.t_s <= reads[0].t_s
    (end,) = run.played.of(Kind.END, index)
    assert end.t_s == reads[-1].t_s


def test_a_redirect_is_an_answer_and_is_not_followed(run: Run) -> None:
    assert run.reason("/redirect") == "complete"
    assert [seen.path for seen in run.server.seen].count("/sized") == 1 + 3 + 1


def test_a_body_without_framing_ends_with_the_connection(run: Run) -> None:
    assert run.reason("/until-close") == "complete"
    assert run.played.body(run.number("/until-close")).endswith(b"\r\n\r\nto the end")


def test_connection_close_is_obeyed_and_the_next_request_gets_a_fresh_one(run: Run) -> None:
    paths = run.server.seen[len(KIND) : FIRST_IDLE]
    assert [seen.path for seen in paths] == CLOSING
    numbers = [seen.connection for seen in paths]
    assert numbers == [1, 2, 2, 3, 3, 4]
    assert run.played.of(Kind.RETRY, run.number("/until-close")) == []


def test_bytes_behind_a_whole_answer_cost_the_connection_not_the_answer(run: Run) -> None:
    assert run.reason("/trailing-bytes") == "complete"


def test_a_connection_that_died_while_idle_is_replaced_before_it_is_used(run: Run) -> None:
    index = FIRST_IDLE + 1
    assert run.played.reason(index) == "complete"
    assert run.played.body(index) == sized(b"{}")
    assert len(run.played.of(Kind.CONNECTED, index)) == 1


def test_a_server_that_resets_every_connection_is_retried_once_only(run: Run) -> None:
    assert [e.request for e in run.played.of(Kind.RETRY)] == [FIRST_HOSTILE]
    assert PATHS[FIRST_HOSTILE] == "/reset-at-once"
    assert [seen.path for seen in run.server.seen].count("/reset-at-once") == 2


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/reset-at-once", "reset: "),
        ("/reset-in-the-middle", "reset: Connection reset by peer"),
        ("/closed-in-the-middle", "eof"),
        ("/garbage", "garbage: "),
        ("/garbage-in-the-middle", "garbage: "),
        ("/silent", "timeout"),
        ("/silent-in-the-middle", "timeout"),
        ("/deaf", "timeout"),
        ("/upgrade", "garbage: "),
    ],
)
def test_hostile_answers_end_with_their_reason(run: Run, path: str, reason: str) -> None:
    assert run.reason(path).startswith(reason)
    half = path.endswith("middle")
    assert (event("a") in run.played.body(run.number(path))) == half


@pytest.mark.parametrize("path", ["/silent", "/silent-in-the-middle", "/deaf"])
def test_a_server_that_says_nothing_is_left_after_the_time_limit(run: Run, path: str) -> None:
    index = run.number(path)
    (due,) = run.played.of(Kind.DUE, index)
    (end,) = run.played.of(Kind.END, index)
    assert end.t_s - due.t_s == pytest.approx(TIMEOUT_S, abs=0.25)
    assert bool(run.played.of(Kind.SENT, index)) == (path != "/deaf")


def test_other_streams_go_on_beside_hostile_ones(run: Run) -> None:
    for index in (len(PATHS) - 2, len(PATHS) - 1):
        reads = run.played.of(Kind.READ, index)
        assert run.played.reason(index) == "complete"
        assert len(reads) >= 15
        gaps = sorted(b.t_s - a.t_s for a, b in pairwise(reads))
        assert gaps[len(gaps) // 2] == pytest.approx(0.02, abs=0.015)


def test_the_level_ends_soon_after_the_last_time_limit(run: Run) -> None:
    level = run.played.level(3)
    assert TIMEOUT_S <= level["end_s"] - level["start_s"] < TIMEOUT_S + 1.0


def test_a_refused_connection_is_a_reason_and_is_not_hammered(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    level = closed("dead", 0, 1000, 1, duration_s=0.5)
    played = play_job(write_job(tmp_path, port, ["/x"] * 1000, [level]))
    ends = played.of(Kind.END)
    assert {e.payload for e in ends} == {b"connect: ECONNREFUSED"}
    assert len(ends) == 4  # at 0, 0.05, 0.15 and 0.35 s
    assert played.of(Kind.CONNECTED) == []
    assert played.of(Kind.SENT) == []


def test_a_connection_that_never_opens_times_out_too(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.settimeout(0)
            filler.connect_ex(("127.0.0.1", port))
        level = LevelJob(number=0, name="full", first=0, count=2)
        job = write_job(
            tmp_path, port, ["/x"] * 2, [level], due_s=[0.0, 0.1], request_timeout_s=0.4
        )
        played = play_job(job)
        for filler in fillers:
            filler.close()
    assert [played.reason(i) for i in range(2)] == ["timeout: no end after 0.4 s"] * 2
    (due,), (end,) = played.of(Kind.DUE, 1), played.of(Kind.END, 1)
    assert end.t_s - due.t_s == pytest.approx(0.4, abs=0.25)
