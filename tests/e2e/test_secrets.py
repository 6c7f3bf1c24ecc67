"""A server's key is sent with every request, and stands in nothing that a run leaves behind."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.store import open_runs
from harness.testing.command_line import CommandLine

KEY = "sk-very-secret-0123456789abcdef"


class Answer(BaseHTTPRequestHandler):
    """Every third answer is an error that repeats the key, half of them compressed."""

    protocol_version = "HTTP/1.1"
    seen: tuple[list[str | None], list[str]] = ([], [])
    is_closed = False

    def do_GET(self) -> None:
        self._note()
        self._say(200, json.dumps({"data": [{"id": KEY}]}).encode())

    def do_POST(self) -> None:
        self._note()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = len(self.seen[0])
        if self.is_closed or (body["max_tokens"] > 1 and number % 3 == 0):
            wrong = {"error": {"message": f"Incorrect API key provided: {KEY}."}}
            self._say(401, json.dumps(wrong).encode(), packed=number % 2 == 0)
            return
        choice = {"text": f"your key is {KEY}", "finish_reason": "length"}
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        event = json.dumps({"choices": [choice], "usage": usage})
        self._say(200, f"data: {event}\n\ndata: [DONE]\n\n".encode(), kind="text/event-stream")

    def _note(self) -> None:
        self.seen[0].append(self.headers["Authorization"])
        self.seen[1].append(self.command)

    def _say(
        self, status: int, body: bytes, *, packed: bool = False, kind: str = "application/json"
    ) -> None:
        if packed:
            body = gzip.compress(body)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Key", KEY)
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Answer.seen = ([], [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_that_a_run_writes_or_says_holds_the_key(
    bakeoff: CommandLine, server: str, tmp_path: Path, workers: int
) -> None:
    told = CommandLine(cwd=bakeoff.cwd, env={**bakeoff.env, "MY_KEY": KEY}, program=bakeoff.program)
    store = tmp_path / "results"
    ended = told(
        "run",
        "engine=openai",
        "launch=attach",
        f"launch.base_url={server}",
        "launch.api_key_env=MY_KEY",
        "model.served_name=m",
        "scenario=fixed",
        "scenario.input_tokens=8",
        "scenario.output_tokens=2",
        "load.users=2",
        "load.requests=30",
        "load.duration_s=null",
        "validity.max_error_ratio=1",
        f"load.workers={workers}",
        f"store={store}",
        "name=keys",
    )
    reported = told("report", f"{store}/keys", "--out", f"{tmp_path}/keys.html")
    assert "Traceback" not in ended.err + reported.err
    assert (ended.code, reported.code) == (0, 0), ended.err
    assert set(Answer.seen[0]) == {f"Bearer {KEY}"}
    (run,) = open_runs(store).runs
    rows = run.requests().to_pylist()
    messages = [row["error_message"] for row in rows if row["error"]]
    assert len(messages) >= 8
    assert all("*" * len(KEY) in message for message in messages)
    assert sum(row["error"] is None for row in rows) >= 15
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 12
    holding = [path for path in files if KEY.encode() in path.read_bytes()]
    assert holding == []
    assert KEY not in ended.out + ended.err + reported.out + reported.err


def test_a_key_in_place_of_its_name_is_not_repeated(bakeoff: CommandLine, server: str) -> None:
    ended = bakeoff(
        "run",
        "engine=openai",
        "launch=attach",
        f"launch.base_url={server}",
        f"launch.api_key_env={KEY}",
    )
    assert ended.code == 2
    assert (
        "launch.api_key_env=(not shown): must be the name of an environment variable" in ended.err
    )
    assert KEY not in ended.out + ended.err


def test_a_server_that_refuses_with_the_key_does_not_show_it(
    bakeoff: CommandLine, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answer, "is_closed", True)
    ended = bakeoff(
        "run",
        "engine=openai",
        "launch=attach",
        f"launch.base_url={server}",
        "launch.api_key_env=MY_KEY",
        "engine.ready_timeout_s=8",
        "model.served_name=m",
        f"store={tmp_path / 'results'}",
        "name=closed",
        env={"MY_KEY": KEY},
    )
    assert ended.code == 4
    assert f"Incorrect API key provided: {'*' * len(KEY)}." in ended.err
    assert KEY not in ended.out + ended.err
    held = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in held if KEY.encode() in path.read_bytes()] == []
    (run,) = open_runs(tmp_path / "results").runs
    assert "Incorrect API key provided: ***" in str(run.info.diagnosis)
