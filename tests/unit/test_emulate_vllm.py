"""The emulated vLLM as a server: its loading, its failing streams, its times."""

import json
import socket
import sys
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from adapters.metrics import Metrics
from harness.config import EmulateConf
from harness.emulate import command
from harness.emulate.model.engine import EngineModel
from harness.emulate.model.sequence import Sequence
from harness.emulate.model.simulate import token_times
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.wires.vllm.metrics import metrics_text
from harness.errors import ConfigError
from harness.testing.emulated import emulated

PATIENT_S = 20.0
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the server needs epoll")
HEALTH = b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"


def raw(**body: Any) -> bytes:
    data = json.dumps({"prompt": "hello", "max_tokens": 4, "ignore_eos": True, **body}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)


@ON_LINUX
def test_a_failing_stream_ends_with_its_event_and_the_connection_goes_on() -> None:
    with emulated("--step-ms", "1", "--stream-error-ratio", "1", engine="vllm") as server:
        url = urlsplit(server.base_url)
        with socket.create_connection((url.hostname, url.port), timeout=PATIENT_S) as sock:
            sock.sendall(raw(stream=True) + raw(stream=True) + raw() + HEALTH)
            data = b""
            while piece := sock.recv(65536):
                data += piece
        summary = server.stop()
    streams, whole = data.split(b"HTTP/1.1 ")[1:3], data.split(b"HTTP/1.1 ")[3]
    for stream in streams:
        assert stream.count(b'"text"') == 2  # of four tokens
        assert stream.count(b'data: {"error": {"message": "EngineCore') == 1
        assert stream.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert whole.startswith(b"500 ")
    assert data.split(b"HTTP/1.1 ")[4].startswith(b"200 ")
    assert summary["requests"] == {"error": 3}
    assert server.knobs["slots"] == 256


def test_its_port_is_closed_while_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    def listen(_host: str, _port: int) -> socket.socket:
        done.append("listens")
        raise ConfigError("far enough")

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=done.append))
    monkeypatch.setattr(command, "_listen", listen)
    for engine in ("vllm", "vllm_cpu"):
        with pytest.raises(ConfigError, match="far enough"):
            command.serve([engine, "--loading-s", "30", "--speed", "20"])
    assert done == [1.5, "listens", 1.5, "listens"]


def test_the_histograms_hold_the_times_that_a_client_sees() -> None:
    conf = EmulateConf(
        step_ms=10,
        step_per_sequence_ms=0,
        step_per_kv_token_us=0,
        prefill_tokens_per_s=1000,
        speed=10,
    )
    model = EngineModel(conf)
    arrivals = (0.0, 0.5)
    given = [Sequence(prompt_tokens=100, output_tokens=3, arrival_s=at) for at in arrivals]
    times = token_times(model, given)
    assert times[0] == pytest.approx([0.11, 0.12, 0.13])
    counters = model.counters
    assert (counters.begun, counters.complete) == (2, 2)
    assert counters.ttft_s == pytest.approx(0.22)
    assert counters.e2e_s == pytest.approx(0.26)
    player = Player(conf, Pace(conf.speed))
    player._model = model
    text = metrics_text(conf, "tiny", player, created_s=7)
    metrics = Metrics(text)
    assert metrics.total("vllm:time_to_first_token_seconds_count") == 2
    assert metrics.total("vllm:time_to_first_token_seconds_sum") == pytest.approx(0.022)
    assert metrics.total("vllm:e2e_request_latency_seconds_bucket") == 2
    assert metrics.total("vllm:e2e_request_latency_seconds_sum") == pytest.approx(0.026)
    assert metrics.total("vllm:generation_tokens_created") == 7
    assert metrics.total("vllm:prompt_tokens_by_source_total") == 200


@pytest.mark.parametrize("ratio", [-0.1, 1.5])
def test_the_share_of_failing_streams_is_a_ratio(ratio: float) -> None:
    with pytest.raises(ConfigError, match=r"stream_error_ratio=.* must be between 0 and 1"):
        EmulateConf(stream_error_ratio=ratio)
