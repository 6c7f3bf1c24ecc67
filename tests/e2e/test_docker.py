"""Whole runs through `docker`: a stand-in checks the command line and has the emulator started."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.store import open_runs
from harness.testing.command_line import CommandLine
from harness.types import Outcome

pytestmark = pytest.mark.timeout(300)

IMAGE = "vllm/vllm-openai:v0.33.0"
RUN = (
    *("run", "engine=vllm", "launch=docker", "model=file", "model.name=tiny"),
    *("engine.image.needs_gpu=false", "engine.max_running=4", "engine.max_model_len=512"),
    *("scenario=fixed", "scenario.input_tokens=24", "scenario.output_tokens=6"),
    *("load.users=2", "load.duration_s=null", "load.requests=12", "validity.max_lag_s=0.5"),
)


@dataclass
class Docker:
    """What docker's service is to the command: it starts what `run` asks for, apart from it."""

    state: Path
    is_over: threading.Event = field(default_factory=threading.Event)
    servers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def serve(self) -> None:
        while not self.is_over.wait(0.02):
            for asked in self.state.glob("*.run.json"):
                started = json.loads(asked.read_text())
                asked.unlink()
                self._start(asked.name.removesuffix(".run.json"), started["argv"])

    def _start(self, name: str, argv: list[str]) -> None:
        port, served = (argv[argv.index(key) + 1] for key in ("--port", "--served-model-name"))
        host = argv[argv.index("--host") + 1]
        command = [sys.executable, "-m", "harness.emulate", "vllm", "--host", host]
        command += ["--port", port, "--served-names", served, "--step-ms", "5"]
        self.servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        file = self.state / f"{name}.part"
        file.write_text(str(self.servers[-1].pid))
        file.replace(self.state / f"{name}.pid")

    def calls(self, command: str) -> list[list[str]]:
        lines = (self.state / "calls.jsonl").read_text().splitlines()
        return [call for call in map(json.loads, lines) if call[0] == command]

    @property
    def alive(self) -> list[int]:
        return [server.pid for server in self.servers if server.poll() is None]


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Docker]:
    state = tmp_path / "docker"
    (state / "bin").mkdir(parents=True)
    (state / "bin" / "docker").symlink_to(Path(__file__).with_name("fake_docker.py"))
    (state / "images.json").write_text("{}")
    service = Docker(state)
    thread = threading.Thread(target=service.serve)
    thread.start()
    yield service
    service.is_over.set()
    thread.join()
    for server in service.servers:
        server.kill()
        server.wait()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that could be a model's: the emulator does not read it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"dtype": "bfloat16"}')
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def env_of(docker: Docker) -> dict[str, str]:
    path = f"{docker.state / 'bin'}:{os.environ['PATH']}"
    return {"PATH": path, "FAKE_DOCKER": str(docker.state), "HF_HOME": "/hub"}


def test_a_run_in_a_container_from_its_image_to_its_end(
    bakeoff: CommandLine, docker: Docker, model: Path, tmp_path: Path
) -> None:
    ended = bakeoff(*RUN, f"model.path={model}", "name=boxed", env=env_of(docker))
    assert ended.code == 0, ended.err
    assert f"pulling {IMAGE}" in ended.err
    (run,) = open_runs(tmp_path / "results").runs
    info = run.info
    assert info.facts["image"]["digest"] == f"sha256:{'2' * 64}"
    assert info.facts["model"]["format"] == "safetensors bfloat16"
    assert (info.emulated, info.identity.version) == (True, "0.32.0")
    rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
    assert [row["error"] for row in rows] == [None] * 12
    assert any(row["engine_rss_bytes"] for row in run.host_samples().to_pylist())
    (call,) = docker.calls("run")
    options, argv = call[1 : call.index(IMAGE)], call[call.index(IMAGE) + 1 :]
    assert argv[0] == str(model)
    port = argv[argv.index("--port") + 1]
    assert options[:5] == ["--rm", "--name", options[2], "--publish", f"127.0.0.1:{port}:{port}"]
    assert options[2].startswith("bakeoff-vllm-")
    assert pairs(options)["--volume"] == [f"{model}:{model}:ro", "/hub:/root/.cache/huggingface"]
    assert pairs(options)["--ipc"] == ["host"]
    assert "--gpus" not in options
    said = pairs(argv)
    assert (said["--host"], said["--max-num-seqs"]) == (["0.0.0.0"], ["4"])
    assert docker.calls("rm") == [["rm", "--force", options[2]]]
    assert docker.alive == []


def pairs(words: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word, value in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            found.setdefault(word, []).append(value)
    return found


def test_the_plan_shows_the_same_command_and_pulls_nothing(
    bakeoff: CommandLine, docker: Docker, model: Path
) -> None:
    words = ["plan", *RUN[1:], f"model.path={model}", "launch.port=18080"]
    ended = bakeoff(*words, env=env_of(docker))
    assert ended.code == 0, ended.err
    shown = [line for line in ended.out.splitlines() if "docker run" in line]
    assert len(shown) == 1
    assert f"--publish 127.0.0.1:18080:18080 --ipc host --volume {model}:{model}:ro" in shown[0]
    assert f"{IMAGE} {model} --host 0.0.0.0 --port 18080" in shown[0]
    assert docker.calls("image") == [["image", "inspect", "--format", "{{json .}}", IMAGE]]
    assert docker.servers == []


def test_a_killed_bakeoff_leaves_no_container(
    bakeoff: CommandLine, docker: Docker, model: Path
) -> None:
    words = [*RUN, f"model.path={model}", "load.requests=9999", "name=killed"]
    process = bakeoff.start(*words, env=env_of(docker))
    try:
        wait_for(lambda: bool(docker.servers) and bool(list(bakeoff.cwd.rglob("journal.bin"))))
    finally:
        process.kill()
        process.communicate()
    wait_for(lambda: not docker.alive, timeout_s=15)
    wait_for(lambda: len(docker.calls("rm")) == 1)


def wait_for(check: Any, timeout_s: float = 90) -> None:
    end = threading.Event()
    left = int(timeout_s / 0.05)
    while not check() and left:
        end.wait(0.05)
        left -= 1
    assert left, "did not happen in time"


def test_what_docker_lacks_is_said(bakeoff: CommandLine, docker: Docker, model: Path) -> None:
    here = [*RUN, f"model.path={model}"]
    ended = bakeoff(*here, "engine.image.reference=missing:1", env=env_of(docker))
    assert ended.code == 2
    assert "manifest for missing:1 not found" in ended.err
    ended = bakeoff(*here, "engine.image.reference=vllm/vllm-openai:latest", env=env_of(docker))
    assert ended.code == 2
    assert "NAME:TAG with a fixed tag, not latest" in ended.err
    ended = bakeoff(*here, "engine.image.needs_gpu=true", env=env_of(docker))
    assert ended.code == 2
    assert "needs a GPU; none found" in ended.err
    ended = bakeoff(*here, env={"PATH": str(Path(sys.executable).parent)})
    assert ended.code == 2
    assert "there is no docker command on PATH" in ended.err


def test_a_container_that_dies_is_noticed(
    bakeoff: CommandLine, docker: Docker, model: Path, tmp_path: Path
) -> None:
    words = [*RUN, f"model.path={model}", "load.requests=9999", "name=dies"]
    process = bakeoff.start(*words, env=env_of(docker))
    try:
        wait_for(lambda: bool(docker.servers) and bool(list(bakeoff.cwd.rglob("journal.bin"))))
        docker.servers[0].kill()
        _, err = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 5, err
    (run,) = open_runs(tmp_path / "results").runs
    assert run.info.outcome is Outcome.DIED
