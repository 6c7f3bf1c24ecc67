import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httptools
import pytest

from harness.calibrate.server.log import StreamLog, order_statistic, read_log
from harness.calibrate.server.tls import CERTIFICATE

TTFT_S = 0.03

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server needs epoll")


class Server:
    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self.log = log
        self.url = urlsplit(process.stdout.readline().removeprefix("listening on ").strip())

    def stop(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=20)
        assert self.process.returncode == 0
        summary: dict[str, Any] = json.loads(out)
        return summary

    def connect(self) -> socket.socket:
        sock = socket.create_connection((self.url.hostname, self.url.port), timeout=20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


@contextmanager
def serving(log: Path, *more: str, tokens_per_s: float = 200) -> Iterator[Server]:
    options = ["--ttft-ms", str(TTFT_S * 1e3), "--tokens-per-s", str(tokens_per_s), *more]
    argv = [sys.executable, "-m", "harness.calibrate.server", *options, "--log", str(log)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process, log)
        finally:
            process.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "server.log") as running:
        yield running


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "server.log", "--tls", "--host", "::1") as running:
        yield running


def encrypted(server: Server) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=CERTIFICATE)
    return context.wrap_socket(server.connect(), server_hostname=server.url.hostname)


def request(tokens: object, *, index: int | None = None, path: str = "/v1/completions") -> bytes:
    body = json.dumps({"prompt": "one two", "stream": True, "max_tokens": tokens}).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}"]
    if index is not None:
        lines.append(f"X-Request-Index: {index}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Answer:
    """Reads one whole answer; `pieces` are the chunks of its body."""

    def __init__(self, sock: socket.socket) -> None:
        self.pieces: list[bytes] = []
        self.is_complete = False
        parser = httptools.HttpResponseParser(self)
        while not self.is_complete:
            data = sock.recv(65536)
            assert data, "closed before the end"
            parser.feed_data(data)
        self.status = parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True

    @property
    def events(self) -> list[Any]:
        lines = [e for e in b"".join(self.pieces).split(b"\n\n") if e]
        assert lines[-1] == b"data: [DONE]"
        return [json.loads(e.removeprefix(b"data: ")) for e in lines[:-1]]


def check_completion(answer: Answer, tokens: int) -> None:
    *events, usage = answer.events
    assert answer.status == 200
    assert [e["choices"][0]["text"] for e in events] == [f" {k}" for k in range(tokens)]
    reasons = [e["choices"][0]["finish_reason"] for e in events]
    assert reasons == [None] * (tokens - 1) + ["length"]
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": tokens,
        "total_tokens": 2 + tokens,
    }


def test_twenty_streams_get_their_bytes_and_the_log_holds_each_send(server: Server) -> None:
    sizes = {100 + i: 5 + i for i in range(20)}
    socks = {index: server.connect() for index in sizes}
    began_s = time.monotonic()
    for index, sock in socks.items():
        sock.sendall(request(sizes[index], index=index))
    for index, sock in socks.items():
        check_completion(Answer(sock), sizes[index])
        sock.close()
    summary = server.stop()
    log = read_log(server.log)
    columns = log.columns
    assert summary["complete"] == summary["kernel_stamped"] == 20
    assert summary["events"] == sum(sizes.values()) + 20
    assert dict(zip(columns["index"], columns["tokens"], strict=True)) == sizes
    assert set(columns["outcome"]) == {1}
    assert set(columns["is_given"]) == {1}
    due, sent = log.token_times()
    for row, arrival_s in enumerate(columns["arrival_s"]):
        assert began_s <= arrival_s <= began_s + 1
        expected = [arrival_s + TTFT_S + k / 200 for k in range(columns["tokens"][row])]
        assert due[row] == pytest.approx(expected, abs=1e-9)
        assert all(s >= d for s, d in zip(sent[row], due[row], strict=True))


def test_the_arrival_is_the_kernels_even_if_the_server_is_late(server: Server) -> None:
    with server.connect() as sock:
        sock.sendall(request(1))
        check_completion(Answer(sock), 1)
        server.process.send_signal(signal.SIGSTOP)
        before_s = time.monotonic()
        sock.sendall(request(2))
        after_s = time.monotonic()
        time.sleep(0.15)
        server.process.send_signal(signal.SIGCONT)
        check_completion(Answer(sock), 2)
    server.stop()
    log = read_log(server.log)
    assert before_s - 1e-4 <= log.columns["arrival_s"][1] <= after_s + 1e-4
    due, sent = log.token_times()
    assert due[1][0] == pytest.approx(log.columns["arrival_s"][1] + TTFT_S, abs=1e-9)
    assert sent[1][0] >= before_s + 0.15


def test_a_request_has_arrived_when_its_last_byte_has(server: Server) -> None:
    data = request(1)
    with server.connect() as sock:
        sock.sendall(data[:30])
        time.sleep(0.05)
        sock.sendall(data[30:-1])
        time.sleep(0.05)
        before_s = time.monotonic()
        sock.sendall(data[-1:])
        check_completion(Answer(sock), 1)
    server.stop()
    arrival_s = read_log(server.log).columns["arrival_s"][0]
    assert arrival_s >= before_s - 1e-4


def test_a_client_that_leaves_does_not_stop_the_others(server: Server) -> None:
    socks = [server.connect() for _ in range(4)]
    for index, sock in enumerate(socks):
        sock.sendall(request(40, index=index))
    leaver = socks.pop(1)
    assert leaver.recv(10)
    leaver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    leaver.close()
    for sock in socks:
        check_completion(Answer(sock), 40)
        sock.close()
    summary = server.stop()
    log = read_log(server.log)
    outcomes = dict(zip(log.columns["index"], log.columns["outcome"], strict=True))
    assert outcomes == {0: 1, 1: 2, 2: 1, 3: 1}
    assert summary["disconnected"] == 1


def test_a_client_that_does_not_read_gets_every_byte_later(tmp_path: Path) -> None:
    with serving(tmp_path / "server.log", tokens_per_s=50_000) as server:
        with server.connect() as slow, server.connect() as quick:
            slow.sendall(request(60_000, index=0))
            time.sleep(1.5)
            quick.sendall(request(3, index=1))
            check_completion(Answer(quick), 3)
            check_completion(Answer(slow), 60_000)
        server.stop()
        columns = read_log(server.log).columns
    assert list(columns["outcome"]) == [1, 1]
    assert columns["blocked"][0] > 0
    assert columns["blocked"][1] == 0


def test_two_requests_on_one_connection_even_sent_at_once(server: Server) -> None:
    with server.connect() as sock:
        sock.sendall(request(2) + request(3, path="/v1/chat/completions"))
        wanted = b"0\r\n\r\n"
        data = b""
        while data.count(wanted) < 2:
            data += sock.recv(65536)
    first, second = data.split(wanted)[:2]
    assert first.count(b'"text":') == 2
    assert second.count(b'"role":"assistant"') == 1
    assert [second.count(f'"content":" {k}"'.encode()) for k in range(4)] == [1, 1, 1, 0]


def test_other_routes_and_refusals(server: Server) -> None:
    with server.connect() as sock:
        for path, status in (("/health", 200), ("/v1/models", 200), ("/nothing", 404)):
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            assert Answer(sock).status == status
    for bad in (
        b"garbage\r\n\r\n",
        request(0),
        request("ten"),
        request(1).replace(b"true", b"null"),
    ):
        with server.connect() as sock:
            sock.sendall(bad)
            assert Answer(sock).status == 400
            assert sock.recv(10) == b""


def test_streams_over_tls_and_ipv6_are_the_same(tls_server: Server) -> None:
    assert tls_server.url.scheme == "https"
    assert tls_server.url.hostname == "::1"
    sizes = {7: 30, 8: 20}
    socks = {index: encrypted(tls_server) for index in sizes}
    for index, sock in socks.items():
        sock.sendall(request(sizes[index], index=index))
    for index, sock in socks.items():
        check_completion(Answer(sock), sizes[index])
        sock.sendall(request(2, index=100 + index))
        check_completion(Answer(sock), 2)
        sock.close()
    summary = tls_server.stop()
    assert summary["complete"] == summary["kernel_stamped"] == 4
    due, sent = read_log(tls_server.log).token_times()
    assert sorted(map(len, due)) == [2, 2, 20, 30]
    assert all(s >= d for row in range(4) for s, d in zip(sent[row], due[row], strict=True))


def test_over_tls_too_the_arrival_is_the_kernels(tls_server: Server) -> None:
    with encrypted(tls_server) as sock:
        sock.sendall(request(1))
        check_completion(Answer(sock), 1)
        tls_server.process.send_signal(signal.SIGSTOP)
        before_s = time.monotonic()
        sock.sendall(request(2))
        after_s = time.monotonic()
        time.sleep(0.15)
        tls_server.process.send_signal(signal.SIGCONT)
        check_completion(Answer(sock), 2)
    tls_server.stop()
    arrivals = read_log(tls_server.log).columns["arrival_s"]
    assert before_s - 1e-4 <= arrivals[1] <= after_s + 1e-4


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"])
def test_who_does_not_speak_tls_is_closed_and_others_are_served(
    tls_server: Server, data: bytes
) -> None:
    with tls_server.connect() as sock:
        sock.sendall(data)
        while sock.recv(100):  # an alert, then the end
            pass
    with encrypted(tls_server) as sock:
        sock.sendall(request(3))
        check_completion(Answer(sock), 3)
    assert tls_server.stop()["complete"] == 1


def test_a_tls_client_that_says_farewell_or_resets_in_the_middle(tls_server: Server) -> None:
    polite, rude, other = (encrypted(tls_server) for _ in range(3))
    for index, sock in enumerate((polite, rude, other)):
        sock.sendall(request(40, index=index))
        assert sock.recv(10)
    with pytest.raises((ssl.SSLError, OSError)):
        polite.unwrap()  # data still comes instead of the server's farewell
    polite.close()
    rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    rude.close()
    while b"[DONE]" not in other.recv(65536):
        pass
    other.close()
    summary = tls_server.stop()
    assert summary["requests"] == 3
    assert summary["complete"] >= 1


def test_it_ends_with_its_parent_even_if_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    code = (
        "import sys, time; from pathlib import Path;"
        "from harness.calibrate.server.running import running_server\n"
        "with running_server(Path(sys.argv[1])) as url: print(url, flush=True); time.sleep(60)"
    )
    argv = [sys.executable, "-c", code, str(log)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert urlsplit(parent.stdout.readline().strip()).port
        parent.kill()
    wait_until_s = time.monotonic() + 20
    while not log.exists() and time.monotonic() < wait_until_s:
        time.sleep(0.05)
    assert log.exists()


def test_the_grpc_side_greets_a_client_of_http2(tmp_path: Path) -> None:
    with serving(tmp_path / "server.log", "--grpc") as server, server.connect() as sock:
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        head = sock.recv(9, socket.MSG_WAITALL)
        assert head[3:] == bytes([4, 0, 0, 0, 0, 0])  # SETTINGS
        assert server.stop()["requests"] == 0


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (0.0, 1.0)])
def test_order_statistic_is_a_sample_not_a_mean(ratio: float, expected: float) -> None:
    assert order_statistic([4.0, 1.0, 3.0, 2.0], ratio) == expected


def test_a_log_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    log = StreamLog()
    row = log.add_request(index=7, arrival_s=1.0, is_kernel=True, tokens=1)
    log.add_event(row, 0, 1.5, 1.75)
    path = tmp_path / "x.log"
    log.write(path, settings={"a": 1})
    whole = read_log(path)
    assert whole.settings == {"a": 1}
    assert whole.summary["late_p99_s"] == 0.25
    assert whole.token_times() == ([[1.5]], [[1.75]])
    os.truncate(path, path.stat().st_size - 4)
    with pytest.raises(ValueError, match="event_sent_s"):
        read_log(path)
