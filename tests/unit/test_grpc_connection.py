"""The gRPC connection in its event loop, against servers that misbehave, over real sockets."""

import socket
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import gevent
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from harness.grpc import frames as http2
from harness.grpc.call import pack_message
from harness.grpc.frames import ACK, END_HEADERS, END_STREAM, FrameType, frame
from harness.load.journal import Kind
from harness.load.wire import stamps
from harness.testing.grpc_sender import GrpcSender
from harness.testing.scripted import Script, Step
from harness.testing.scripted_grpc import (
    GrpcScript,
    ScriptedGrpcServer,
    good_script,
    grpc_data,
    grpc_head,
    grpc_trailers,
)

PING = frame(FrameType.PING, 0, 0, b"12345678")
GOAWAY = frame(FrameType.GOAWAY, 0, 0, b"\x7f\xff\xff\xff" + bytes(4))
TIMEOUT_S = 0.5
SCRIPTS: Mapping[str, GrpcScript] = {
    "/good": good_script(b"a", b"b"),
    "/pieces": lambda s: (grpc_head(s), 0.03, grpc_data(s, b"a"), 0.03, grpc_trailers(s)),
    "/ping": lambda s: (grpc_head(s) + PING, grpc_data(s, b"a") + PING, grpc_trailers(s) + PING),
    "/refused": lambda s: (grpc_head(s, flags=END_HEADERS | END_STREAM, grpc_status="14"),),
    "/ends-by-data": lambda s: (grpc_head(s) + frame(FrameType.DATA, END_STREAM, s),),
    "/goaway-behind": lambda s: (grpc_head(s) + GOAWAY + grpc_trailers(s),),
    "/goaway-before": lambda _: (frame(FrameType.GOAWAY, 0, 0, bytes(8)), Step.HANG),
    "/trailing-bytes": lambda s: (grpc_head(s) + grpc_trailers(s) + b"\xff" * 9,),
    "/trailing-half": lambda s: (grpc_head(s) + grpc_trailers(s) + PING[:5],),
    "/rst-refused": lambda s: (frame(FrameType.RST_STREAM, 0, s, b"\0\0\0\x07"),),
    "/rst-cancel": lambda s: (grpc_head(s) + frame(FrameType.RST_STREAM, 0, s, b"\0\0\0\x08"),),
    "/reset-at-once": lambda _: (Step.RESET,),
    "/reset-in-the-middle": lambda s: (grpc_head(s) + grpc_data(s, b"a"), 0.05, Step.RESET),
    "/closed-in-the-middle": lambda s: (grpc_head(s) + grpc_data(s, b"a"), 0.05, Step.CLOSE),
    "/closes-when-idle": lambda s: (good_script(b"a")(s)[0], Step.CLOSE),
    "/garbage": lambda s: (grpc_head(s), b"\xff" * 9, Step.HANG),
    "/oversized": lambda s: (grpc_head(s), b"\x10\x00\x01\x00\x00" + bytes((0, 0, 0, s))),
    "/half-frame": lambda s: (grpc_head(s), grpc_data(s, b"abc")[:-1], Step.HANG),
    "/silent": lambda _: (Step.HANG,),
    "/silent-in-the-middle": lambda s: (grpc_head(s) + grpc_data(s, b"a"), Step.HANG),
    "/deaf": lambda _: (Step.DEAF,),
    "/flood": lambda s: (grpc_head(s), *[PING * 1000] * 5, grpc_trailers(s)),
}
WHOLE = ("/good", "/pieces", "/ping", "/refused", "/ends-by-data", "/goaway-behind")


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedGrpcServer]:
    with ScriptedGrpcServer(SCRIPTS) as running, socket.socket() as primer:
        stamps.enable(primer)  # the kernel stamps from now on
        yield running


@pytest.fixture
def sender(server: ScriptedGrpcServer, tmp_path: Path) -> Iterator[GrpcSender]:
    made = GrpcSender(server.port, tmp_path, timeout_s=TIMEOUT_S)
    yield made
    made.close()


class Ended(NamedTuple):
    """`connection`: kept, closed, or dead before any answer."""

    reason: str
    status: int
    connection: str


def play(sender: GrpcSender, path: str, body: bytes = b"{}") -> Ended:
    exchange = sender.send(path, body)
    broken = "dead" if exchange.is_dead else "closed"
    return Ended(exchange.reason, exchange.status, "kept" if sender.connection else broken)


def test_calls_that_follow_one_another_go_over_one_connection(
    server: ScriptedGrpcServer, sender: GrpcSender
) -> None:
    seen = len(server.seen)
    for path in WHOLE[:5]:
        assert play(sender, path)[::2] == ("complete", "kept")
    streams = [e for e in server.heard if e[1] == FrameType.HEADERS][seen:]
    assert [stream for _, _, _, stream, _ in streams] == [1, 3, 5, 7, 9]
    assert len({number for number, *_ in streams}) == 1
    channels = [sender.of(Kind.CHANNEL, i)[0].extra for i in range(5)]
    assert len(set(channels)) == 1
    assert [len(sender.of(Kind.CONNECTED, i)) for i in range(5)] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("path", WHOLE)
def test_whole_answers_are_kept_byte_for_byte(sender: GrpcSender, path: str) -> None:
    assert sender.send(path).reason == "complete"
    steps = b"".join(step for step in SCRIPTS[path](1) if isinstance(step, bytes))
    read = sender.body(0)
    assert read.replace(frame(FrameType.SETTINGS, 0, 0), b"", 1) == steps
    (sent,) = sender.of(Kind.SENT, 0)
    reads = sender.of(Kind.READ, 0)
    assert reads[0].t_s <= reads[-1].t_s
    assert all(0.0 <= e.extra < 1.0 for e in reads)
    assert sent.t_s <= reads[-1].t_s


def test_a_read_has_the_stamp_of_its_arrival(sender: GrpcSender) -> None:
    exchange = sender.send("/pieces")
    reads = sender.of(Kind.READ, 0)
    assert 0.025 < reads[-1].t_s - reads[-2].t_s < 3.0
    assert exchange.end_s == reads[-1].t_s


def test_pings_are_answered_while_a_call_runs_and_while_none_does(
    server: ScriptedGrpcServer, sender: GrpcSender
) -> None:
    assert play(sender, "/ping").reason == "complete"
    number = server.connections

    def acks() -> int:
        return server.heard.count((number, FrameType.PING, ACK, 0, b"12345678"))

    with gevent.Timeout(5.0):
        while acks() < 3:
            gevent.sleep(0.01)
    server._open[number - 1].sendall(PING)
    with gevent.Timeout(5.0):
        while acks() < 4:
            gevent.sleep(0.01)
    before = len(sender.body(0))
    assert play(sender, "/good").connection == "kept"
    assert len(sender.body(0)) == before  # what came between two calls belongs to none
    assert PING not in sender.body(1)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/good", Ended("complete", 200, "kept")),
        ("/refused", Ended("complete", 500, "kept")),
        ("/not-there", Ended("complete", 500, "kept")),
        ("/goaway-behind", Ended("complete", 500, "closed")),
        ("/goaway-before", Ended("reset: GOAWAY NO_ERROR", 0, "dead")),
        ("/trailing-bytes", Ended("complete", 500, "closed")),
        ("/rst-refused", Ended("reset: RST_STREAM REFUSED_STREAM", 0, "dead")),
        ("/rst-cancel", Ended("reset: RST_STREAM CANCEL", 0, "closed")),
        ("/reset-in-the-middle", Ended("reset: Connection reset by peer", 0, "closed")),
        ("/closed-in-the-middle", Ended("eof", 0, "closed")),
        ("/garbage", Ended("garbage: a frame of 16777215 bytes: at most 1048576", 0, "closed")),
        (
            "/oversized",
            Ended("garbage: a frame of 1048577 bytes: at most 1048576", 0, "closed"),
        ),
        ("/half-frame", Ended("timeout", 0, "closed")),
        ("/silent", Ended("timeout", 0, "closed")),
        ("/silent-in-the-middle", Ended("timeout", 0, "closed")),
        ("/flood", Ended("complete", 500, "kept")),
    ],
)
def test_every_call_ends_with_its_reason(sender: GrpcSender, path: str, expected: Ended) -> None:
    assert play(sender, path) == expected
    assert play(sender, "/good").reason == "complete"  # the loop and the next call go on


def test_a_reset_before_any_answer_is_a_dead_connection(sender: GrpcSender) -> None:
    ended = play(sender, "/reset-at-once")
    assert ended.reason.startswith("reset: ") or ended.reason == "eof"
    assert ended.connection == "dead"


def test_a_connection_that_died_while_idle_takes_no_call(sender: GrpcSender) -> None:
    assert play(sender, "/closes-when-idle") == Ended("complete", 200, "kept")
    gevent.sleep(0.1)
    ended = play(sender, "/good")
    assert ended == Ended("reset: the connection died while it was idle", 0, "dead")
    assert play(sender, "/good").reason == "complete"


def test_half_a_frame_behind_an_answer_costs_the_connection(sender: GrpcSender) -> None:
    assert play(sender, "/trailing-half").reason == "complete"
    assert play(sender, "/good").connection == "dead"


def test_a_request_that_is_not_taken_ends_by_the_time_limit(sender: GrpcSender) -> None:
    begin_s = time.monotonic()
    ended = play(sender, "/deaf", b"x" * 24_000_000)
    assert ended.reason == "timeout"
    assert time.monotonic() - begin_s == pytest.approx(TIMEOUT_S, abs=2.0)
    assert sender.of(Kind.SENT, 0) == []


def test_a_long_request_arrives_whole_when_the_server_opens_its_windows(tmp_path: Path) -> None:
    body = bytes(range(256)) * 1200
    greeting = (
        http2.settings(INITIAL_WINDOW_SIZE=400_000) + http2.window_update(0, 400_000 - 65_535),
    )
    with ScriptedGrpcServer(SCRIPTS, greeting=greeting) as server:
        sender = GrpcSender(server.port, tmp_path, timeout_s=TIMEOUT_S)
        assert sender.send("/good", body).reason == "complete"
        assert server.messages[1, 1] == pack_message(body)
        assert len(sender.of(Kind.SENT, 0)) == 1
        sender.close()


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.9\r\n", PING]
)
def test_a_server_that_speaks_something_else_is_found_out(tmp_path: Path, greeting: bytes) -> None:
    with ScriptedGrpcServer(SCRIPTS, greeting=(greeting,)) as server:
        sender = GrpcSender(server.port, tmp_path, timeout_s=TIMEOUT_S)
        assert sender.send("/good").reason.startswith("garbage: no HTTP/2")
        sender.close()


def test_a_refused_connection_is_a_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    sender = GrpcSender(port, tmp_path, timeout_s=TIMEOUT_S)
    assert sender.send("/good").reason == "connect: ECONNREFUSED"
    assert sender.of(Kind.CONNECTED, 0) == []
    sender.close()


def test_other_calls_go_on_while_one_connection_is_flooded(
    server: ScriptedGrpcServer, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    senders = [GrpcSender(server.port, folder, timeout_s=TIMEOUT_S) for folder in folders]
    paths = ("/flood", "/pieces", "/silent")
    jobs = [gevent.spawn(s.send, path) for s, path in zip(senders, paths, strict=True)]
    assert [job.get(timeout=5.0).reason for job in jobs] == ["complete", "complete", "timeout"]
    for each in senders:
        each.close()


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    cuts=st.lists(st.integers(1, 130), max_size=4, unique=True),
    is_whole=st.booleans(),
    end=st.sampled_from((Step.CLOSE, Step.RESET)),
)
def test_an_answer_cut_anywhere_ends_exactly_once(
    tmp_path: Path, cuts: list[int], is_whole: bool, end: Step
) -> None:
    whole = PING + grpc_head(1) + grpc_data(1, b"abc", b"d") + grpc_trailers(1)
    edges = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(edges)]
    steps: list[bytes | float | Step] = [s for piece in pieces for s in (piece, 0.001)]
    script: Script = [*(steps if is_whole else steps[:-2]), end]
    broken = {"eof"} if end is Step.CLOSE else {"reset: Connection reset by peer"}
    expected = {"complete"} if is_whole else broken
    if end is Step.RESET:
        expected |= broken  # it overtakes what the client has not read yet
    with ScriptedGrpcServer({"/cut": lambda _: script}) as server:
        sender = GrpcSender(server.port, tmp_path, timeout_s=TIMEOUT_S)
        assert sender.send("/cut").reason in expected
        sender.close()
