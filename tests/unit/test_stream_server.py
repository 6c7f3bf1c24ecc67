import importlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httptools
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TTFT_S = 0.03

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server needs epoll")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module


class Server:
    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self.log = log
        self.port = int(process.stdout.readline().rpartition(":")[2])

    def stop(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=20)
        assert self.process.returncode == 0
        summary: dict[str, Any] = json.loads(out)
        return summary

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


@contextmanager
def serving(log: Path, *, tokens_per_s: float = 200) -> Iterator[Server]:
    script = str(BENCHMARKS / "stream_server.py")
    options = ["--ttft-ms", str(TTFT_S * 1e3), "--tokens-per-s", str(tokens_per_s)]
    argv = [sys.executable, script, *options, "--log", str(log)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process, log)
        finally:
            process.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "server.log") as running:
        yield running


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


def test_twenty_streams_get_their_bytes_and_the_log_holds_each_send(
    server: Server, module: Any
) -> None:
    sizes = {100 + i: 5 + i for i in range(20)}
    socks = {index: server.connect() for index in sizes}
    began_s = time.monotonic()
    for index, sock in socks.items():
        sock.sendall(request(sizes[index], index=index))
    for index, sock in socks.items():
        check_completion(Answer(sock), sizes[index])
        sock.close()
    summary = server.stop()
    log = module("stream_log").read_log(server.log)
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


def test_the_arrival_is_the_kernels_even_if_the_server_is_late(server: Server, module: Any) -> None:
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
    log = module("stream_log").read_log(server.log)
    assert before_s - 1e-4 <= log.columns["arrival_s"][1] <= after_s + 1e-4
    due, sent = log.token_times()
    assert due[1][0] == pytest.approx(log.columns["arrival_s"][1] + TTFT_S, abs=1e-9)
    assert sent[1][0] >= before_s + 0.15


def test_a_request_has_arrived_when_its_last_byte_has(server: Server, module: Any) -> None:
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
    arrival_s = module("stream_log").read_log(server.log).columns["arrival_s"][0]
    assert arrival_s >= before_s - 1e-4


def test_a_client_that_leaves_does_not_stop_the_others(server: Server, module: Any) -> None:
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
    log = module("stream_log").read_log(server.log)
    outcomes = dict(zip(log.columns["index"], log.columns["outcome"], strict=True))
    assert outcomes == {0: 1, 1: 2, 2: 1, 3: 1}
    assert summary["disconnected"] == 1


def test_a_client_that_does_not_read_gets_every_byte_later(tmp_path: Path, module: Any) -> None:
    with serving(tmp_path / "server.log", tokens_per_s=50_000) as server:
        with server.connect() as slow, server.connect() as quick:
            slow.sendall(request(60_000, index=0))
            time.sleep(1.5)
            quick.sendall(request(3, index=1))
            check_completion(Answer(quick), 3)
            check_completion(Answer(slow), 60_000)
        server.stop()
        columns = module("stream_log").read_log(server.log).columns
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


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (0.0, 1.0)])
def test_order_statistic_is_a_sample_not_a_mean(module: Any, ratio: float, expected: float) -> None:
    assert module("stream_log").order_statistic([4.0, 1.0, 3.0, 2.0], ratio) == expected


def test_a_log_that_is_cut_off_is_refused(module: Any, tmp_path: Path) -> None:
    stream_log = module("stream_log")
    log = stream_log.StreamLog()
    row = log.add_request(index=7, arrival_s=1.0, is_kernel=True, tokens=1)
    log.add_event(row, 0, 1.5, 1.75)
    path = tmp_path / "x.log"
    log.write(path, settings={"a": 1})
    whole = stream_log.read_log(path)
    assert whole.settings == {"a": 1}
    assert whole.summary["late_p99_s"] == 0.25
    assert whole.token_times() == ([[1.5]], [[1.75]])
    os.truncate(path, path.stat().st_size - 4)
    with pytest.raises(ValueError, match="event_sent_s"):
        stream_log.read_log(path)
