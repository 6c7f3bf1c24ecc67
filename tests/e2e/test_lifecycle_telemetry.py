"""Samples of a stand-in engine that burns a core, and of a client that rests."""

import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.engine.ports import free_port
from harness.engine.probe import Endpoint
from harness.engine.process import EngineProcess
from harness.engine.telemetry import Telemetry
from harness.types import EngineSample, HttpCall

# Serves its request count at /metrics while a child burns one core; told "slow", takes 0.3 s.
SERVER = """
import os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
if os.fork() == 0:
    while os.getppid() != 1: pass
    os._exit(0)
count, peers = 0, set()
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        global count
        count += 1
        peers.add(self.client_address)
        time.sleep(float(sys.argv[2]))
        body = f"{count} {len(peers)}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def sample_of(bodies: Mapping[str, bytes]) -> EngineSample:
    count, peers = map(float, bodies["metrics"].split())
    return EngineSample(running=count, waiting=peers)


def adapter(sample: object = sample_of) -> SimpleNamespace:
    probes = {"metrics": HttpCall(method="GET", path="/metrics")}
    return SimpleNamespace(probes=probes, sample_probes=("metrics",), engine_sample=sample)


def start(tmp_path: Path, port: int, answer_s: float = 0.0) -> EngineProcess:
    argv = [sys.executable, "-c", SERVER, str(port), str(answer_s)]
    return EngineProcess("stand-in", argv, {}, log_path=tmp_path / "engine.log")


def test_engine_client_and_machine_are_sampled_on_the_runs_clock(tmp_path: Path) -> None:
    port = free_port()
    with (
        start(tmp_path, port) as process,
        subprocess.Popen(["sleep", "60"]) as client,
    ):
        time.sleep(0.5)
        zero_s = time.monotonic() - 100.0
        url = f"http://127.0.0.1:{port}"
        telemetry = Telemetry(adapter(), Endpoint(url), process, zero_s=zero_s, interval_s=0.2)
        telemetry.start()
        telemetry.watch_client(client.pid)
        time.sleep(2.0)
        engine, host = telemetry.stop()
        client.kill()
    assert 8 <= len(engine) <= 12
    assert [s.running for s in engine] == [float(i + 1) for i in range(len(engine))]
    assert {s.waiting for s in engine} == {1.0}  # one connection, kept
    assert engine[0].t_s == pytest.approx(100.0, abs=0.5)
    assert engine[-1].t_s == pytest.approx(102.0, abs=0.5)
    assert all(s.scrape_s is not None and 0 < s.scrape_s < 0.2 for s in engine)
    assert 8 <= len(host) <= 12
    cores = [s.engine_cpu_ratio for s in host if s.engine_cpu_ratio is not None]
    assert 0.4 < sum(cores) / len(cores) < 1.3  # the child burns one core; other work may share it
    assert [s.client_cpu_ratio for s in host][-3:] == pytest.approx([0.0] * 3, abs=0.05)
    assert all(0.0 <= s.cpu_total_ratio <= 1.0 for s in host)
    assert all((s.engine_rss_bytes or 0) > 2**20 for s in host[1:])
    assert all((s.client_rss_bytes or 0) > 2**16 for s in host[1:])
    assert 0 < telemetry.own_cpu_s < 0.3
    assert telemetry.problems == []


def test_a_slow_probe_is_asked_less_often(tmp_path: Path) -> None:
    port = free_port()
    with start(tmp_path, port, answer_s=0.3) as process:
        time.sleep(0.5)
        url = f"http://127.0.0.1:{port}"
        telemetry = Telemetry(adapter(), Endpoint(url), process, zero_s=0.0, interval_s=0.05)
        telemetry.start()
        time.sleep(2.0)
        engine, host = telemetry.stop()
    assert len(engine) == 2  # the first and the last; at full speed it would be six
    assert len(host) > 15  # the other thread goes on


def test_a_server_that_is_gone_or_talks_nonsense_ends_nothing(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    telemetry = Telemetry(adapter(), Endpoint(url), None, zero_s=0.0, interval_s=0.05)
    telemetry.start()
    time.sleep(0.3)
    engine, host = telemetry.stop()
    assert engine == []
    assert telemetry.failed_probes >= 2
    assert host
    assert {s.engine_cpu_ratio for s in host} == {None}

    def nonsense(bodies: Mapping[str, bytes]) -> EngineSample:
        raise ValueError("nonsense")

    port = free_port()
    with start(tmp_path, port) as process:
        time.sleep(0.5)
        url = f"http://127.0.0.1:{port}"
        telemetry = Telemetry(
            adapter(nonsense), Endpoint(url), process, zero_s=0.0, interval_s=0.05
        )
        telemetry.start()
        time.sleep(0.3)
        assert telemetry.stop()[0] == []
    assert telemetry.problems == ["ValueError('nonsense')"]
    assert not [t for t in threading.enumerate() if t.name.startswith("telemetry")]
