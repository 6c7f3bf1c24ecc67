"""What HTTP allows and what servers make of it: the client in this process, real sockets."""

import gzip
import resource
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import gevent
import pytest

from harness.load.journal import Kind
from harness.testing.loopback import Loopback, loopback
from harness.testing.scripted import InTurn, Script, ScriptedServer, Step

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
BIG = bytes(range(256)) * 8192  # more than is read at once, and than a socket holds
ZIPPED = gzip.compress(b"zipped text")


def sized(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return OK + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def piece(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def refused(*headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 429 Too Many Requests\r\n" + lines + b"Content-Length: 2\r\n\r\n{}"


SCRIPTS: dict[str, Script | InTurn] = {
    "/sized": (sized(b"{}"),),
    "/chunked": (CHUNKED + piece(b"a"), 0.02, piece(b"b") + END),
    "/trailer": (CHUNKED + piece(b"a") + b"0\r\nX-End: yes\r\n\r\n",),
    "/until-close": (OK + b"Content-Type: text/plain\r\n\r\nto the ", 0.02, b"end", Step.CLOSE),
    "/http-1.0": (b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nold", Step.CLOSE),
    "/no-body": (b"HTTP/1.1 204 No Content\r\n\r\n",),
    "/interim": (
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n",
        0.01,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + sized(b"real"),
    ),
    "/interim-until-close": (
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n" + OK + b"\r\nrest",
        Step.CLOSE,
    ),
    "/redirect": (b"HTTP/1.1 307 Go\r\nLocation: /sized\r\nContent-Length: 0\r\n\r\n",),
    "/gzip": (sized(ZIPPED, b"Content-Encoding: gzip"),),
    "/gzip-chunked": (
        OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        *(step for byte in ZIPPED for step in (piece(bytes([byte])), 0.0)),
        END,
    ),
    "/gzip-cut": (sized(ZIPPED[:-12], b"Content-Encoding: gzip"),),
    "/lingers": (CHUNKED + piece(b'data: {"usage":1}\n\n') + piece(b"data: [DONE]\n\n"), Step.HANG),
    "/late-usage": (
        CHUNKED + piece(b"data: [DONE]\n\n"),
        0.4,
        piece(b'data: {"usage":1}\n\n') + END,
    ),
    "/big": (sized(BIG),),
    "/big-until-close": (OK + b"\r\n" + BIG, Step.CLOSE),
    "/thinks": (CHUNKED + piece(b'data: {"text":"[DONE]"}\n\n'), Step.HANG),
    "/silent": (Step.HANG,),
    "/deaf": (Step.DEAF,),
    "/late-garbage": (sized(b"{}"), 0.05, b"rubbish"),
    "/two-answers": (sized(b"{}") + sized(b"unasked"),),
    "/half-an-answer": (sized(b"{}") + b"HTTP/1.",),
    "/busy": InTurn(((refused(b"Retry-After: 0.2"),), (sized(b"{}"),))),
    "/busy-twice": InTurn(((refused(),), (refused(b"retry-after: 0"),), (sized(b"{}"),))),
    "/busy-for-ever": (refused(b"Retry-After: 3600"),),
    "/dies-when-reused": InTurn(((sized(b"{}"),), (Step.CLOSE,), (sized(b"{}"),))),
    "/last": (sized(b"{}"), 0.05, Step.CLOSE),
    "/last-said": (sized(b"{}", b"Connection: close"), Step.CLOSE),
}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(SCRIPTS) as running:
        yield running


@pytest.fixture
def load(tmp_path: Path, server: ScriptedServer) -> Iterator[Loopback]:
    with loopback(tmp_path, server.port, timeout_s=2.0) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/sized", b"{}"),
        ("/chunked", b"ab"),
        ("/trailer", b"a"),
        ("/until-close", b"to the end"),
        ("/http-1.0", b"old"),
        ("/no-body", b""),
        ("/interim", b"real"),
        ("/interim-until-close", b"rest"),
        ("/gzip", b"zipped text"),
        ("/big", BIG),
        ("/big-until-close", BIG),
        ("/late-usage", b'data: [DONE]\n\ndata: {"usage":1}\n\n'),
        ("/gzip-chunked", b"zipped text"),
    ],
)
def test_a_whole_answer_of_any_form_is_complete_and_can_be_kept(
    load: Loopback, path: str, body: bytes
) -> None:
    ended = load.send(path, keep=True)
    assert (ended.reason, ended.is_good, ended.pieces) == ("complete", True, (body,))
    assert ended.head is not None
    assert ended.head.status == ended.status == (204 if path == "/no-body" else 200)
    (end,) = load.entries(Kind.END)
    assert (end.payload, end.t_s) == (b"complete", ended.end_s)
    sent = b"".join(step for step in SCRIPTS[path] if isinstance(step, bytes))
    assert load.body(0) == sent


def test_what_is_not_to_be_kept_is_not(load: Loopback) -> None:
    ended = load.send("/sized")
    assert (ended.head, ended.pieces) == (None, ())


def test_a_cut_gzip_body_is_given_as_far_as_it_goes(load: Loopback) -> None:
    ended = load.send("/gzip-cut", keep=True)
    assert ended.reason == "complete"
    assert b"zipped text".startswith(ended.pieces[0])


def test_a_redirect_is_an_answer_and_is_not_followed(
    load: Loopback, server: ScriptedServer
) -> None:
    ended = load.send("/redirect", keep=True)
    assert (ended.reason, ended.status) == ("complete", 307)
    assert ended.head is not None
    assert ended.head.headers["location"] == "/sized"
    assert [seen.path for seen in server.seen] == ["/redirect"]


def test_what_was_kept_of_no_answer_has_no_head(load: Loopback) -> None:
    ended = load.send("/silent", keep=True)
    assert (ended.is_good, ended.status, ended.head, ended.pieces) == (False, 0, None, (b"",))


def test_the_time_limit_is_named(load: Loopback) -> None:
    begin_s = time.monotonic()
    ended = load.send("/silent")
    assert ended.reason == "timeout: no end after 2.0 s"
    assert ended.end_s - begin_s == pytest.approx(2.0, abs=0.1)


def test_there_is_no_limit_but_ours(tmp_path: Path, server: ScriptedServer) -> None:
    with loopback(tmp_path, server.port, timeout_s=1e6) as load:
        assert load.send("/chunked").reason == "complete"


def test_a_socket_left_open_after_done_does_not_hold_its_user(load: Loopback) -> None:
    begin_s = time.monotonic()
    ended = load.send("/lingers")
    assert (ended.reason, ended.status) == ("complete", 200)
    assert 1.0 <= ended.end_s - begin_s < 1.8
    assert load.send("/sized").reason == "complete"
    assert load.client.stats.connects == 2


def test_done_inside_a_text_ends_nothing(load: Loopback) -> None:
    assert load.send("/thinks").reason.startswith("timeout")


def test_a_cancelled_request_is_closed_at_the_server(
    load: Loopback, server: ScriptedServer
) -> None:
    waiting = gevent.spawn(load.send, "/silent")
    while not server.seen:
        gevent.sleep(0.01)
    load.client.cancel_all("cut off")
    assert waiting.get().reason == "cut off"
    while not server.left_s:
        gevent.sleep(0.01)
    assert load.client.stats.in_flight == 0


def test_a_killed_user_leaves_an_end_and_no_connection(
    load: Loopback, server: ScriptedServer
) -> None:
    waiting = gevent.spawn(load.send, "/silent")
    while not server.seen:
        gevent.sleep(0.01)
    waiting.kill()
    (end,) = load.entries(Kind.END)
    assert end.payload == b"cut off"
    while not server.left_s:
        gevent.sleep(0.01)


def test_a_request_that_is_not_read_ends_at_its_limit_unsent(load: Loopback) -> None:
    ended = load.send("/deaf", body=b"x" * 24_000_000)
    assert ended.reason == "timeout: no end after 2.0 s"
    assert load.entries(Kind.SENT) == []


def test_an_answer_to_half_a_request_ends_it_at_once(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        loopback(tmp_path, listener.getsockname()[1]) as load,
    ):
        sending = gevent.spawn(load.send, "/upload", body=b"x" * 24_000_000)
        gevent.sleep(0.1)
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            begin_s = time.monotonic()
            ended = sending.get()
        assert (ended.reason, ended.status) == ("complete", 413)
        assert time.monotonic() - begin_s < 2.0
        assert load.entries(Kind.SENT) == []


def test_a_keep_alive_limit_costs_no_request(load: Loopback, server: ScriptedServer) -> None:
    for path in ("/last", "/last-said"):
        for _ in range(3):
            assert load.send(path).reason == "complete"
            gevent.sleep(0.1)
    assert load.entries(Kind.RETRY) == []
    numbers = [seen.connection for seen in server.seen]
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert load.client.stats.connects == 6


@pytest.mark.parametrize("path", ["/late-garbage", "/two-answers", "/half-an-answer"])
def test_bytes_that_nobody_asked_for_cost_the_connection_not_an_answer(
    load: Loopback, server: ScriptedServer, path: str
) -> None:
    assert load.send(path, keep=True).pieces == (b"{}",)
    gevent.sleep(0.1)
    assert load.send("/sized").reason == "complete"
    assert [seen.connection for seen in server.seen] == [1, 2]


def test_a_connection_that_dies_as_it_is_used_again_is_replaced_once(load: Loopback) -> None:
    assert [load.send("/dies-when-reused").reason for _ in range(2)] == ["complete"] * 2
    (retry,) = load.entries(Kind.RETRY)
    assert retry.request == 1
    assert load.client.stats.retries == 1


def test_a_refusal_is_an_answer_where_nothing_is_sent_again(load: Loopback) -> None:
    ended = load.send("/busy")
    assert (ended.reason, ended.status, ended.is_good) == ("complete", 429, False)
    assert load.entries(Kind.AGAIN) == []


def test_after_a_refusal_the_request_waits_and_is_sent_again(
    tmp_path: Path, server: ScriptedServer
) -> None:
    with loopback(tmp_path, server.port, retries=1) as load:
        ended = load.send("/busy")
        assert (ended.reason, ended.status) == ("complete", 200)
        (again,) = load.entries(Kind.AGAIN)
        assert again.extra == 0.2
        first, second = server.seen
        assert 0.19 < second.t_s - first.t_s < 0.6
        first_s, second_s = (entry.t_s for entry in load.entries(Kind.SENT))
        assert 0.19 < second_s - first_s < 0.6
        assert len(load.entries(Kind.END)) == 1
        assert (load.client.stats.retries, load.client.stats.connects) == (1, 1)


def test_each_refusal_takes_one_retry_and_one_second_where_none_is_named(
    tmp_path: Path, server: ScriptedServer
) -> None:
    with loopback(tmp_path, server.port, retries=2) as load:
        assert load.send("/busy-twice").status == 200
        assert [entry.extra for entry in load.entries(Kind.AGAIN)] == [1.0, 0.0]


def test_a_wait_beyond_the_time_limit_is_not_begun(tmp_path: Path, server: ScriptedServer) -> None:
    with loopback(tmp_path, server.port, retries=3) as load:
        begin_s = time.monotonic()
        assert load.send("/busy-for-ever").status == 429
        assert time.monotonic() - begin_s < 1.0
        assert load.entries(Kind.AGAIN) == []


def test_a_wait_can_be_cut_off(tmp_path: Path, server: ScriptedServer) -> None:
    with loopback(tmp_path, server.port, timeout_s=1e4, retries=1) as load:
        waiting = gevent.spawn(load.send, "/busy-for-ever")
        while not load.entries(Kind.AGAIN):
            gevent.sleep(0.01)
        load.client.cancel_all("cut off")
        assert waiting.get().reason == "cut off"


def test_without_a_file_descriptor_a_request_fails_and_the_others_go_on(
    tmp_path: Path, server: ScriptedServer
) -> None:
    with loopback(tmp_path, server.port) as load:
        running = gevent.spawn(load.send_together, *["/chunked"] * 4)
        while len(server.seen) < 4:
            gevent.sleep(0.001)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            ended = load.send("/sized")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert ended.reason == "connect: EMFILE"
        assert [one.reason for one in running.get()] == ["complete"] * 4
        assert load.send("/sized").reason == "complete"


def test_requests_under_way_are_counted(load: Loopback, server: ScriptedServer) -> None:
    load.send_together(*["/chunked"] * 5)
    load.send("/chunked")
    stats = load.client.stats
    assert (stats.in_flight, stats.peak_in_flight) == (0, 5)
    assert (stats.connects, stats.retries) == (5, 0)
    assert len({seen.connection for seen in server.seen}) == 5


def test_stamps_rise_and_every_request_has_one_end(load: Loopback) -> None:
    load.send_together(*["/chunked", "/sized", "/silent"] * 3)
    for index in range(9):
        times = [e.t_s for e in load.entries(request=index) if e.kind is not Kind.DUE]
        assert all(a <= b + 0.001 for a, b in pairwise(times[1:]))
        assert len(load.entries(Kind.END, index)) == 1


def test_an_ipv6_address(tmp_path: Path) -> None:
    with (
        ScriptedServer(SCRIPTS, address="::1") as server,
        loopback(tmp_path, server.port, host="::1") as load,
    ):
        assert load.send("/chunked").reason == "complete"


def both_addresses(_: str, port: int, **__: object) -> list[tuple[object, ...]]:
    return [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
    ]


@pytest.mark.parametrize("address", ["::1", "127.0.0.1"])
def test_of_a_name_with_two_addresses_the_one_that_listens_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr("gevent.socket.getaddrinfo", both_addresses)
    with (
        ScriptedServer(SCRIPTS, address=address) as server,
        loopback(tmp_path, server.port, host="twice") as load,
    ):
        assert load.send("/chunked").reason == "complete"


def test_a_name_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ScriptedServer
) -> None:
    asked = []

    def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return both_addresses(host, port)[1:]

    monkeypatch.setattr("gevent.socket.getaddrinfo", look_up)
    with loopback(tmp_path, server.port, host="named") as load:
        for path in ("/last", "/last", "/sized"):
            assert load.send(path).reason == "complete"
    assert asked == ["named"]
