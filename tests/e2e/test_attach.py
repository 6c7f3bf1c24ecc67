"""A server that already runs: found whatever its base URL ends with, measured, left running."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.engine.ports import free_port
from harness.engine.probe import Answer, Endpoint, call
from harness.store import open_runs
from harness.testing.command_line import CommandLine
from harness.types import HttpCall

pytestmark = pytest.mark.timeout(300)  # runs wait for one another on a machine

FAKE_SERVER = Path(__file__).with_name("fake_llama_server.py")
HEALTH = HttpCall(method="GET", path="/health")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [str(FAKE_SERVER), "--port", str(port), "-np", "2"], stdout=subprocess.DEVNULL
    ) as server:
        end_s = time.monotonic() + 20
        while not isinstance(call(Endpoint(base_url), HEALTH, 1.0), Answer):
            assert time.monotonic() < end_s
            time.sleep(0.05)
        yield base_url
        server.terminate()


@pytest.mark.parametrize(("ending", "route"), [("", "completions"), ("/v1/", "chat")])
def test_a_running_server_is_measured_and_left_running(
    ending: str, route: str, url: str, bakeoff: CommandLine, tmp_path: Path
) -> None:
    """C54: a slash or /v1 at the end makes no other address of it."""
    ended = bakeoff(
        "run",
        "engine=openai",
        f"engine.route={route}",
        "launch=attach",
        f"launch.base_url={url}{ending}",
        "model=file",
        "model.name=anything",
        "model.served_name=x",
        "scenario.output_tokens=6",
        "scenario.output_tokens_min=6",
        "load.users=2",
        "load.duration_s=null",
        "load.requests=8",
        "validity.max_lag_s=0.5",
        "name=attached",
    )
    assert ended.code == 0, ended.err
    (run,) = open_runs(tmp_path / "results").runs
    rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
    assert [row["error"] for row in rows] == [None] * 8
    assert {row["output_tokens"] for row in rows} == {6}
    assert run.info.time_to_ready_s is None
    assert run.info.config["launch"]["base_url"] == url
    assert isinstance(call(Endpoint(url), HEALTH, 5.0), Answer)


def test_nothing_runs_there(bakeoff: CommandLine) -> None:
    where = f"launch.base_url=http://127.0.0.1:{free_port()}"
    ended = bakeoff(
        "run", "engine=openai", "launch=attach", where, "engine.ready_timeout_s=1", "model=file"
    )
    assert ended.code == 4
    assert "not ready within 1 s; last answer: connection refused" in ended.err
    assert "check that the server runs at launch.base_url" in ended.err
    assert "Traceback" not in ended.err
