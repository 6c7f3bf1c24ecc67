"""The script that starts a deployment, with a stand-in for MII: what it asks for, and its end."""

import argparse
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.deepspeed_mii_launch import SERVER
from harness.engine.ports import free_port

NAMES = runpy.run_path(str(SERVER), run_name="server")
END_S = 60.0
PORTS = ["--grpc-port", "7", "--rest-port", "9", "--zmq-port", "10", "--torch-dist-port", "11"]

MII = """
import json, os, subprocess, sys
from mii.backend import MIIServer

def serve(model, **keywords):
    said = {"model": model, "keywords": keywords, "path": os.environ["PATH"].split(os.pathsep)[0]}
    server = MIIServer(keywords["port_number"])
    said["front_is_up"] = server.start()
    said["cache"] = os.environ["MII_CACHE_PATH"]
    with open(os.environ["SAID"], "w") as file:
        json.dump(said, file)
    return Client(server)

class Client:
    def __init__(self, server):
        self.server = server
    def terminate_server(self):
        print("terminated", flush=True)
        self.server.end()
"""
BACKEND = """
import subprocess, sys

LISTEN = (
    "import socket, sys\\n"
    "with socket.create_server(('localhost', int(sys.argv[1]))) as one:\\n"
    "    while True: one.accept()[0].close()"
)

class MIIServer:
    started = []
    def __init__(self, port):
        self.port = port
    def start(self):
        self._launch_server_process({}, "MII server", server_args=[])
        front = self._launch_server_process({}, "load balancer", server_args=["--load-balancer"])
        return front is not None
    def _launch_server_process(self, config, kind, ds_launch_str="", server_args=None):
        port = self.port if kind == "load balancer" else 0
        one = subprocess.Popen([sys.executable, "-c", LISTEN, str(port)])
        print("started", kind, one.pid, flush=True)
        self.started.append(one)
        return one
    def end(self):
        for one in self.started:
            one.terminate()
"""
OPENAI = """
import json, os, socket, sys
with open(os.environ["SAID"] + ".openai", "w") as file:
    json.dump({"argv": sys.argv[1:], "model": os.path.realpath(sys.argv[2])}, file)
with socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1]))) as one:
    while True: one.accept()[0].close()
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A package `mii` that records what it is asked for and opens the ports."""
    for name, content in (
        ("__init__.py", MII),
        ("backend.py", BACKEND),
        ("entrypoints/__init__.py", ""),
        ("entrypoints/openai_api_server.py", OPENAI),
    ):
        file = tmp_path / "stand-in" / "mii" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return tmp_path


def parsed(*more: str) -> argparse.Namespace:
    args = NAMES["options"]().parse_args(["--model", "org/big", *PORTS, *more])
    assert isinstance(args, argparse.Namespace)
    return args


def keywords(folder: Path, *more: str) -> dict[str, Any]:
    found = NAMES["arguments"](parsed(*more), folder)
    assert isinstance(found, dict)
    return found


def test_every_port_and_gpu_is_said_even_if_nothing_is_set(tmp_path: Path) -> None:
    assert keywords(tmp_path) == {
        "deployment_name": "bakeoff-7",
        "tensor_parallel": 1,
        "replica_num": 1,
        "device_map": {"localhost": [[0]]},
        "hostfile": str(tmp_path / "hostfile"),
        "port_number": 7,
        "enable_restful_api": False,
        "restful_api_port": 9,
        "zmq_port_number": 10,
        "torch_dist_port": 11,
    }
    assert (tmp_path / "hostfile").read_text() == "localhost slots=1\n"


def test_flags_become_keywords_of_mii(tmp_path: Path) -> None:
    line = ["--tensor-parallel", "2", "--replica-num", "2", "--gpus", "1,2,5,6"]
    line += ["--quantization-mode", "wf6af16", "--max-length", "4096", "--max-running", "4000"]
    line += ["--tokens-per-step", "5000", "--reserve-bytes", "77"]
    found = keywords(tmp_path, *line, "--serve", '{"profile_model_time": true}')
    assert found["device_map"] == {"localhost": [[1, 2], [5, 6]]}
    assert (found["max_length"], found["quantization_mode"]) == (4096, "wf6af16")
    assert found["profile_model_time"] is True
    assert found["inference_engine_config"] == {
        "state_manager": {
            "max_ragged_batch_size": 5000,
            "max_ragged_sequence_count": 4000,
            "max_tracked_sequences": 4000,
            "max_context": 4096,
            "memory_config": {"mode": "reserve", "size": 77},
        }
    }
    assert (tmp_path / "hostfile").read_text() == "localhost slots=7\n"


@pytest.mark.parametrize(
    ("config", "blocks"),
    [
        ({"hidden_size": 4096, "num_attention_heads": 32}, 16),  # heads of 128: blocks of 64
        ({"hidden_size": 576, "num_attention_heads": 9}, 8),  # heads of 64: blocks of 128
        ({"hidden_size": 1, "num_attention_heads": 1, "head_dim": 96}, 16),
    ],
)
def test_the_kv_cache_is_counted_in_blocks(
    tmp_path: Path, config: dict[str, int], blocks: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = keywords(tmp_path, "--model", str(tmp_path), "--kv-tokens", "1000")
    manager = found["inference_engine_config"]["state_manager"]
    assert manager == {"memory_config": {"mode": "allocate", "size": blocks}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--kv-tokens", "5"], r"--kv-tokens: needs org/big/config\.json"),
        (["--kv-tokens", "5", "--reserve-bytes", "5"], "two sizes"),
        (["--gpus", "1,2"], "1 x 1 of them"),
        (["--serve", '{"port_number": 5}'], "port_number is set by a flag"),
        (
            [
                *("--max-length", "8"),
                *("--serve", '{"inference_engine_config": {"state_manager": {"max_context": 9}}}'),
            ],
            "inference_engine_config.state_manager.max_context is set by a flag",
        ),
        (["--served-name", "/etc/x"], "--served-name=/etc/x"),
        (["--served-name", "../x"], "--served-name"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, line: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keywords(tmp_path, *line)


@contextmanager
def running(stand_in: Path, ports: list[int], *more: str) -> Iterator["subprocess.Popen[str]"]:
    """The script with the stand-in, its output as text."""
    argv = [sys.executable, str(SERVER), "--grpc-port", str(ports[0]), *PORTS[2:], *more]
    env = {**os.environ, "PYTHONPATH": str(stand_in / "stand-in"), "SAID": str(stand_in / "said")}
    with subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: "subprocess.Popen[str]", beginning: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.startswith(beginning):
            return lines
    raise AssertionError("\n".join(lines))


def is_open(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.timeout(180)
def test_a_deployment_is_served_until_sigterm(stand_in: Path) -> None:
    ports = [free_port()]
    with running(stand_in, ports, "--model", "org/big") as process:
        lines = lines_until(process, "mii_server: ready")
        assert lines[-1] == f"mii_server: ready grpc={ports[0]}"
        assert lines[0].startswith("mii_server: versions: deepspeed-mii ")
        kinds = [line.split(" ")[1:-1] for line in lines if line.startswith("started")]
        assert kinds == [["MII", "server"], ["load", "balancer"]]
        assert is_open(ports[0])
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=END_S)
        assert rest.splitlines() == ["mii_server: stopping", "terminated"]
        assert process.returncode == 0
        assert not is_open(ports[0])
    said = json.loads((stand_in / "said").read_text())
    assert said["front_is_up"] is False  # it was started after `serve` had seen its replicas
    assert (said["model"], said["keywords"]["port_number"]) == ("org/big", ports[0])
    assert said["path"] == str(Path(sys.executable).parent)
    assert not Path(said["cache"]).exists()  # nothing is left behind


@pytest.mark.timeout(180)
def test_the_openai_server_runs_over_the_deployment_under_the_served_name(stand_in: Path) -> None:
    model = stand_in / "weights"
    model.mkdir()
    more = ["--model", str(model), "--served-name", "org/big"]
    ports = [free_port(), free_port()]
    with running(stand_in, ports, *more, "--openai-port", str(ports[1])) as process:
        ready = lines_until(process, "mii_server: ready")[-1]
        assert ready == f"mii_server: ready grpc={ports[0]} openai={ports[1]}"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=END_S)
        assert (process.returncode, is_open(ports[1])) == (0, False)
    said = json.loads((stand_in / "said.openai").read_text())
    assert said["argv"][:2] == ["--model", "org/big"]
    assert said["model"] == str(model)  # the name is a link to the folder
    assert said["argv"][said["argv"].index("--load-balancer") + 1] == f"localhost:{ports[0]}"
    assert "--chat-template" not in said["argv"]


@pytest.mark.timeout(180)
def test_a_server_process_that_ends_ends_all(stand_in: Path) -> None:
    ports = [free_port()]
    with running(stand_in, ports, "--model", "org/big") as process:
        lines = lines_until(process, "mii_server: ready")
        pid = next(int(line.split()[-1]) for line in lines if line.startswith("started MII"))
        front = next(int(line.split()[-1]) for line in lines if line.startswith("started load"))
        os.kill(pid, signal.SIGKILL)
        try:
            said = lines_until(process, "mii_server: process")
            assert said[-1] == f"mii_server: process {pid} ended with -9"
            assert process.wait(timeout=END_S) == 1
        finally:
            os.kill(front, signal.SIGKILL)  # bakeoff's keeper does it in a run


def test_a_bad_command_line_says_so() -> None:
    argv = [sys.executable, str(SERVER), "--model", "org/big", *PORTS, "--kv-tokens", "5"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=END_S)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1].startswith("mii_server: error: --kv-tokens: needs")
