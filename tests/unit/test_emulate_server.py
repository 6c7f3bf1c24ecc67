"""The emulator as a process on loopback: faults, clients that go, its end. Never how fast."""

import json
import socket
import sys
import time
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from adapters.metrics import Metrics
from harness.emulate.server.lateness import Lateness
from harness.emulate.server.pace import Pace
from harness.engine.probe import Answer, Endpoint, NoAnswer, call
from harness.testing.emulated import Emulated, emulated
from harness.types import HttpCall

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server needs epoll")

PATIENT_S = 20.0
QUICK = ("--step-ms", "1", "--prefill-tokens-per-s", "1e6")


def completion(**body: Any) -> bytes:
    return json.dumps({"prompt": "hello", "max_tokens": 4, "ignore_eos": True, **body}).encode()


def ask(server: Emulated, method: str, path: str, body: bytes = b"") -> Answer | NoAnswer:
    return call(Endpoint(server.base_url), HttpCall(method=method, path=path, body=body), PATIENT_S)


def post(server: Emulated, **body: Any) -> Answer:
    answer = ask(server, "POST", "/v1/completions", completion(**body))
    assert isinstance(answer, Answer), answer
    return answer


def connect(server: Emulated) -> socket.socket:
    url = urlsplit(server.base_url)
    return socket.create_connection((url.hostname, url.port), timeout=PATIENT_S)


def raw(**body: Any) -> bytes:
    data = completion(**body)
    return b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)


def all_of(sock: socket.socket) -> bytes:
    data = b""
    while piece := sock.recv(65536):
        data += piece
    return data


def figures(server: Emulated) -> Metrics:
    answer = ask(server, "GET", "/metrics")
    assert isinstance(answer, Answer), answer
    return Metrics(answer.body)


def await_figure(server: Emulated, name: str, value: float) -> None:
    end_s = time.monotonic() + PATIENT_S
    while (seen := figures(server).total(name)) != value:
        assert time.monotonic() < end_s, f"{name} is {seen}, not {value}"
        time.sleep(0.01)


def test_requests_of_one_connection_are_answered_in_order() -> None:
    with emulated(*QUICK) as server:
        with connect(server) as sock:
            health = b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"
            sock.sendall(raw(max_tokens=2) + raw(max_tokens=2) + health)
            data = all_of(sock)
        assert data.count(b'"text":" tok0 tok1"') == 2
        assert data.endswith(b"content-length: 0\r\n\r\n")
        summary = server.stop()
    assert summary["requests"] == {"length": 2}
    assert summary["tokens"] == 4
    assert summary["events"] == 2  # whole answers
    assert server.knobs["step_ms"] == 1.0


def test_what_is_not_http_is_refused_and_the_connection_closed() -> None:
    with emulated(*QUICK) as server:
        with connect(server) as sock:
            sock.sendall(b"hello there\r\n\r\n")
            assert all_of(sock).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert post(server).head.status == 200


def test_a_client_that_goes_gives_its_slot_free() -> None:
    with emulated("--slots", "1", "--step-ms", "20") as server, ExitStack() as stack:
        running, waiting = (stack.enter_context(connect(server)) for _ in range(2))
        for sock in (running, waiting):
            sock.sendall(raw(max_tokens=8000, stream=True))
        await_figure(server, "vllm:num_requests_waiting", 1)
        waiting.close()
        await_figure(server, "vllm:num_requests_waiting", 0)
        assert figures(server).total("vllm:num_requests_running") == 1
        running.close()
        await_figure(server, "vllm:num_requests_running", 0)
        assert figures(server).total("vllm:kv_cache_usage_perc") == 0
        assert server.stop()["requests"] == {"abort": 2}


def test_while_it_loads_it_answers_503() -> None:
    with emulated(*QUICK, "--loading-s", "30", "--speed", "20") as server:
        assert str(post(server)) == "503 Loading model"
        end_s = time.monotonic() + PATIENT_S
        while post(server).head.status != 200:
            assert time.monotonic() < end_s
            time.sleep(0.05)


def test_above_its_limit_it_answers_429_with_the_wait() -> None:
    options = ("--max-in-flight", "1", "--retry-after-s", "7", "--speed", "2")
    with emulated(*options) as server, connect(server) as first:
        first.sendall(raw(max_tokens=8000, stream=True))
        assert first.recv(15) == b"HTTP/1.1 200 OK"
        second = post(server)
        assert second.head.status == 429
        assert second.head.headers["retry-after"] == "4"


def test_a_share_of_the_requests_fails_and_the_same_ones_each_time() -> None:
    def statuses() -> list[int]:
        with emulated(*QUICK, "--error-ratio", "0.3", "--seed", "5") as server:
            return [post(server).head.status for _ in range(40)]

    once = statuses()
    assert set(once) == {200, 500}
    assert 4 <= once.count(500) <= 20
    assert statuses() == once


@pytest.mark.parametrize(
    ("is_stream", "max_tokens", "sent"), [(True, 4, 2), (True, 1, 0), (False, 4, 0)]
)
def test_a_cut_answer_breaks_off_in_the_middle(is_stream: bool, max_tokens: int, sent: int) -> None:
    with emulated(*QUICK, "--cut-ratio", "1") as server:
        with connect(server) as sock:
            sock.sendall(raw(max_tokens=max_tokens, stream=is_stream))
            data = all_of(sock)
        assert data.count(b'"text"') == sent
        assert data.startswith(b"HTTP/1.1 200 OK") == is_stream
        assert not data.endswith(b"0\r\n\r\n")
        assert server.stop()["requests"] == {"abort": 1}


def test_the_cache_is_seen_in_usage_and_metrics_and_can_be_reset() -> None:
    with emulated(*QUICK, "--prefix-cache") as server:

        def cached_tokens() -> int:
            usage = json.loads(post(server, prompt="x" * 400).body)["usage"]
            return int(usage["prompt_tokens_details"]["cached_tokens"])

        assert [cached_tokens(), cached_tokens()] == [0, 96]
        assert figures(server).total("vllm:prefix_cache_hits_total") == 96
        assert figures(server).total("vllm:prefix_cache_queries_total") == 200
        assert isinstance(ask(server, "POST", "/reset_prefix_cache"), Answer)
        assert cached_tokens() == 0


def test_its_memory_grows_with_virtual_time() -> None:
    options = ("--memory-bytes", "1000", "--memory-growth-bytes-per-hour", "3.6e9")
    with emulated(*options, "--speed", "100") as server:
        one = figures(server).total("process_resident_memory_bytes")
        time.sleep(0.05)
        two = figures(server).total("process_resident_memory_bytes")
        assert one is not None
        assert two is not None
        assert two - one >= 5e6  # a million bytes a second, a hundred times as fast


def test_lateness_is_counted_in_tenths_of_a_millisecond() -> None:
    late = Lateness()
    assert late.quantile_s(0.99) is None
    late.note(5.0, [5.00005, 5.00015, 5.0102, 9.0])
    late.note(5.0, [])
    assert late.events == 4
    assert late.quantile_s(0.25) == pytest.approx(1e-4)
    assert late.quantile_s(0.5) == pytest.approx(2e-4)
    assert late.quantile_s(0.75) == pytest.approx(10.3e-3)
    assert late.max_s == pytest.approx(4.0)


def test_virtual_time_runs_at_its_speed() -> None:
    pace = Pace(60.0)
    assert pace.virtual_s(pace.monotonic_s(3600.0)) == pytest.approx(3600.0)
    assert pace.monotonic_s(3600.0) - pace.monotonic_s(0.0) == pytest.approx(60.0)
    assert pace.now_s() >= 0
