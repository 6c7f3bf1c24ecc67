"""A DeepSpeed-MII deployment started by a run: our script, a stand-in for MII, the real gRPC."""

import sys
from pathlib import Path

import pytest

from harness.store import open_runs
from harness.testing.command_line import CommandLine

pytestmark = [
    pytest.mark.timeout(300),  # runs wait for one another on a machine
    pytest.mark.skipif(sys.platform != "linux", reason="the reference server needs epoll"),
]
MII = """
import subprocess, sys, types

class MIIServer:
    started = []

    def _launch_server_process(self, config, kind, ds_launch_str="", server_args=None):
        argv = ["sleep", "1000"]
        if kind == "load balancer":
            argv = [sys.executable, "-m", "harness.calibrate.server", "--grpc"]
            argv += ["--ttft-ms", "20", "--port", str(self.port)]
        self.started.append(subprocess.Popen(argv))

    def terminate_server(self):
        print("terminated", flush=True)
        for one in self.started:
            one.terminate()

def serve(model, **keywords):
    server = MIIServer()
    server.port = keywords["port_number"]
    server._launch_server_process({}, "MII server")
    server._launch_server_process({}, "load balancer")
    print(f"model={model} device_map={keywords['device_map']}", flush=True)
    return server

backend = types.ModuleType("mii.backend")
backend.MIIServer = MIIServer
sys.modules["mii.backend"] = backend
"""


def test_a_deployment_is_started_measured_and_ended(bakeoff: CommandLine, tmp_path: Path) -> None:
    stand_in, model = tmp_path / "stand-in", tmp_path / "weights"
    for folder in (stand_in, model):
        folder.mkdir()
    (stand_in / "mii.py").write_text(MII)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    ended = bakeoff(
        "run",
        "engine=deepspeed_mii",
        f"engine.program={sys.executable}",
        f"+engine.env.PYTHONPATH={stand_in}",
        "engine.recipe.compute_capability=null",
        "model=file",
        "model.name=x",
        f"model.path={model}",
        "scenario=fixed",
        "scenario.input_tokens=40",
        "scenario.output_tokens=8",
        "load.users=2",
        "load.duration_s=null",
        "load.requests=6",
        "validity.max_lag_s=0.5",
        "name=mii",
    )
    assert ended.code == 0, ended.err
    (run,) = open_runs(tmp_path / "results").runs
    assert run.info.emulated is False
    assert run.info.time_to_ready_s is not None
    rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
    assert [row["error"] for row in rows] == [None] * 6
    assert {(row["output_tokens"], row["tokens_source"]) for row in rows} == {(8, "usage")}
    log = next((tmp_path / "results").rglob("engine.log")).read_text()
    assert f"model={model} device_map={{'localhost': [[0]]}}" in log
    lines = [line for line in log.splitlines() if line.startswith(("mii_server", "terminated"))]
    assert lines[1].startswith("mii_server: ready grpc=")
    assert lines[2:] == ["mii_server: stopping", "terminated"]
