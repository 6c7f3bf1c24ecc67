"""When a stand-in server counts as ready: loading phases, early deaths, foreign ports."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.engine.ports import free_port
from harness.engine.probe import Endpoint
from harness.engine.process import EngineProcess
from harness.engine.ready import REFUSED_FOR_GOOD_S, Readiness, wait_ready
from harness.errors import ConfigError, NotReadyError
from harness.types import (
    Capabilities,
    Chunk,
    ChunkKind,
    Diagnosis,
    EngineIdentity,
    EngineSample,
    ErrorClass,
    HttpCall,
    LogFacts,
    Provenance,
    Request,
    ResponseHead,
)

# Plays a timeline of [until_s, {path: [status, body]}]; nothing listens before the first entry
# with paths. Every request is written to standard output.
SERVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
start, port, timeline = time.monotonic(), int(sys.argv[1]), json.loads(sys.argv[2])
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        at = time.monotonic() - start
        paths = next(p for until, p in timeline if until is None or at < until)
        status, body = paths.get(self.path, [404, {"error": {"message": "no route"}}])
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        print("ASKED", self.path, status, flush=True)
    do_GET = do_POST = answer
    def log_message(self, *args): pass
while not next(p for until, p in timeline if until is None or time.monotonic() - start < until):
    time.sleep(0.01)
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
LOADING = [503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}]
HEALTHY = [200, {"status": "ok"}]
TOKEN = [200, {"text": "Hi", "tokens": 1}]


class OneAnswer:
    """Decodes {"text", "tokens"}; anything else is an error chunk."""

    def __init__(self) -> None:
        self._body = b""

    def feed(self, data: bytes) -> list[Chunk]:
        self._body += data
        return []

    def end(self) -> list[Chunk]:
        try:
            data = json.loads(self._body)
            return [Chunk(kind=ChunkKind.TEXT, text=data["text"], total_tokens=data.get("tokens"))]
        except (ValueError, LookupError):
            error = ErrorClass.ERROR_BODY
            return [Chunk(kind=ChunkKind.ERROR, error=error, message="the engine is sad")]


class StandIn:
    """The least adapter that the ready check needs."""

    name = "stand-in"
    capabilities = Capabilities(
        forced_length=False,
        token_id_prompts=False,
        usage_in_stream=True,
        kv_metric=Provenance.NOT_EXPOSED,
        prefix_cache_off=False,
        tokenize_route=False,
        metrics=False,
    )
    probes: Mapping[str, HttpCall] = {
        "health": HttpCall(method="GET", path="/health"),
        "models": HttpCall(method="GET", path="/v1/models"),
    }
    sample_probes = ()
    identity_probes = ("models",)

    def __init__(self, *_: object) -> None:
        pass

    def serve(self, *_: object) -> None:
        raise NotImplementedError

    def encode(self, request: Request) -> HttpCall:
        assert request.max_output_tokens == 1
        return HttpCall(path="/v1/chat/completions", body=b"{}")

    def log_facts(self, log: str) -> LogFacts:
        return LogFacts(kv_capacity_tokens=len(log.splitlines()))

    def decoder(self, head: ResponseHead) -> OneAnswer:
        return OneAnswer()

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        return EngineSample()

    def identity(self, bodies: Mapping[str, bytes]) -> EngineIdentity:
        return EngineIdentity(model=json.loads(bodies["models"])["data"][0]["id"])

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        if "couldn't bind" in log_tail:
            return Diagnosis(reason="its port is taken", advice="choose another launch.port")
        return None


def start(tmp_path: Path, port: int, timeline: object) -> EngineProcess:
    argv = [sys.executable, "-u", "-c", SERVER, str(port), json.dumps(timeline)]
    return EngineProcess("stand-in", argv, {}, log_path=tmp_path / "engine.log")


def wait(process: EngineProcess | None, port: int, timeout_s: float = 20) -> Readiness:
    url = f"http://127.0.0.1:{port}"
    readiness = wait_ready(process, StandIn(), Endpoint(url), timeout_s=timeout_s)  # type: ignore[arg-type]
    assert readiness.identity.model == "m"
    return readiness


READY = {
    "/health": HEALTHY,
    "/v1/models": [200, {"data": [{"id": "m"}]}],
    "/v1/chat/completions": TOKEN,
}


def test_ready_is_the_first_real_answer_not_the_port_nor_health(tmp_path: Path) -> None:
    not_yet = [503, {"error": {"message": "not ready"}}]
    timeline = [
        [1.0, {}],
        [2.0, {"/health": LOADING}],
        [3.0, READY | {"/v1/chat/completions": not_yet}],
        [None, READY],
    ]
    port = free_port()
    with start(tmp_path, port, timeline) as process:
        readiness = wait(process, port)
        log = process.log_tail(1000)
    took_s, split = readiness.time_to_ready_s, readiness.start
    assert took_s is not None
    assert split.up_s is not None
    assert split.first_answer_s is not None
    assert took_s >= 3.0
    assert 2.0 <= split.up_s < took_s  # healthy a second before it answers
    assert split.up_s + split.first_answer_s == pytest.approx(took_s)
    assert log.count("ASKED /v1/chat/completions 200") == 1
    assert readiness.log.kv_capacity_tokens
    assert readiness.identity.kv_capacity_tokens == readiness.log.kv_capacity_tokens


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"/health": LOADING}, "last answer: 503 Loading model; its log: "),
        (READY | {"/v1/chat/completions": [200, "{}"]}, "200 with an error in it: the engine is"),
        (READY | {"/v1/chat/completions": [200, {"text": "x"}]}, "200 without a count of its tok"),
        ({}, "last answer: connection refused"),
    ],
)
def test_not_ready_in_time_says_the_last_answer(
    tmp_path: Path, answers: object, words: str
) -> None:
    port = free_port()
    with (
        start(tmp_path, port, [[None, answers]]) as process,
        pytest.raises(NotReadyError) as caught,
    ):
        wait(process, port, timeout_s=1.0)
    assert str(caught.value).startswith("engine=stand-in: not ready within 1 s; last answer: ")
    assert words in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("couldn't bind", ": its port is taken; choose another launch.port; its log: "),
        ("one\\n\\ntwo", ": one | two; its log: "),
        ("", ": it said nothing; its log: "),
    ],
)
def test_an_engine_that_ends_early_gives_its_own_reason(
    tmp_path: Path, said: str, words: str
) -> None:
    argv = [sys.executable, "-c", f'import sys; print("{said}"); sys.exit(1)']
    start_s = time.monotonic()
    with (
        EngineProcess("stand-in", argv, {}, log_path=tmp_path / "engine.log") as process,
        pytest.raises(NotReadyError) as caught,
    ):
        wait(process, free_port())
    assert time.monotonic() - start_s < 3
    assert "the server ended with exit code 1 after 0." in str(caught.value)
    assert words in str(caught.value)


def test_another_server_on_the_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "other").mkdir()
    with start(tmp_path / "other", port, [[None, READY]]) as other:
        assert wait(other, port).time_to_ready_s is not None
        argv = [sys.executable, "-c", "import time; time.sleep(60)"]
        with (
            EngineProcess("stand-in", argv, {}, log_path=tmp_path / "engine.log") as process,
            pytest.raises(ConfigError) as caught,
        ):
            wait(process, port)
    assert f"launch.port={port}: answered by process {other.pid} (" in str(caught.value)
    assert "which is not engine=stand-in" in str(caught.value)


def test_a_server_that_is_not_ours_has_no_time_to_ready(tmp_path: Path) -> None:
    port = free_port()
    with start(tmp_path, port, [[None, READY]]) as process:
        assert wait(process, port).time_to_ready_s is not None
        assert wait(None, port).time_to_ready_s is None
    with pytest.raises(NotReadyError, match=r"refused; check that the server runs at launch"):
        wait(None, port, timeout_s=0.3)


def test_a_request_refused_for_good_does_not_wait_for_the_end(tmp_path: Path) -> None:
    refusal = [404, {"error": {"message": "The model `x` does not exist."}}]
    port = free_port()
    start_s = time.monotonic()
    with (
        start(tmp_path, port, [[None, READY | {"/v1/chat/completions": refusal}]]) as process,
        pytest.raises(NotReadyError, match=r"refuses a one-token request: 404 The model `x`"),
    ):
        wait(process, port, timeout_s=60)
    assert time.monotonic() - start_s < 12


def test_a_health_route_that_is_not_there_ends_only_what_we_have_not_started(
    tmp_path: Path,
) -> None:
    """Ours may open its port before it has its routes."""
    port = free_port()
    later = [[REFUSED_FOR_GOOD_S + 3.0, {"/": HEALTHY}], [None, READY]]
    with start(tmp_path, port, later) as process:
        with pytest.raises(NotReadyError) as caught:
            wait(None, port, timeout_s=60)
        assert wait(process, port, timeout_s=60).time_to_ready_s is not None
    assert "the server refuses GET /health: 404 no route; check launch.base_url" in str(
        caught.value
    )
