"""An emulated server measured through the real command line, marked as emulated."""

import sys
from pathlib import Path

import pytest

from harness.store import open_runs
from harness.testing.command_line import CommandLine
from harness.testing.emulated import emulated

pytestmark = [
    pytest.mark.timeout(300),  # runs wait for one another on a machine
    pytest.mark.skipif(sys.platform != "linux", reason="the emulator needs epoll"),
]


@pytest.mark.parametrize("route", ["completions", "chat"])
def test_an_emulated_server_is_measured_and_marked(
    route: str, bakeoff: CommandLine, tmp_path: Path
) -> None:
    knobs = ("--slots", "2", "--step-ms", "10", "--prefill-tokens-per-s", "10000")
    with emulated(*knobs) as server:
        ended = bakeoff(
            "run",
            "engine=openai",
            f"engine.route={route}",
            "+engine.args.ignore_eos=true",
            "launch=attach",
            f"launch.base_url={server.base_url}",
            "model=file",
            "model.name=anything",
            "scenario=fixed",
            "scenario.input_tokens=40",
            "scenario.output_tokens=8",
            "load.users=4",
            "load.duration_s=null",
            "load.requests=20",
            "validity.max_lag_s=0.5",
            "name=emulated",
        )
        assert ended.code == 0, ended.err
        summary = server.stop()
    (run,) = open_runs(tmp_path / "results").runs
    assert run.info.emulated is True
    assert run.info.identity.is_emulated is True
    assert "emulated" in {doubt.code for doubt in run.info.doubts} or "emulat" in ended.out
    rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
    assert [row["error"] for row in rows] == [None] * 20
    assert {row["output_tokens"] for row in rows} == {8}
    for row in rows:  # eight steps of at least 10 ms each, never faster
        assert row["chunk_s"][-1] - row["sent_s"] >= 8 * 0.010
    assert summary["requests"]["length"] >= 20


def test_a_run_starts_its_own_emulator_with_the_engines_settings(
    bakeoff: CommandLine, tmp_path: Path
) -> None:
    ended = bakeoff(
        "run",
        "engine=openai",
        "engine.max_running=3",
        "engine.max_model_len=200",
        "+engine.args.ignore_eos=true",
        "launch=emulate",
        "launch.emulate.step_ms=50",
        "launch.emulate.speed=10",
        "model=file",
        "model.name=tiny",
        "scenario=fixed",
        "scenario.input_tokens=40",
        "scenario.output_tokens=4",
        "load.users=2",
        "load.duration_s=null",
        "load.requests=8",
        "validity.max_lag_s=0.5",
        "name=own",
    )
    assert ended.code == 0, ended.err
    (run,) = open_runs(tmp_path / "results").runs
    assert run.info.emulated is True
    assert run.info.identity.model == "tiny"
    assert run.info.identity.max_model_len_tokens == 200
    assert run.info.time_to_ready_s is not None
    assert run.info.config["launch"]["emulate"]["speed"] == 10
    rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
    assert [row["error"] for row in rows] == [None] * 8
    log = next((tmp_path / "results").rglob("engine.log")).read_text()
    assert '"slots": 3, "max_model_len_tokens": 200' in log


def test_an_engine_that_cannot_force_lengths_is_measured_by_those_that_came(
    bakeoff: CommandLine, tmp_path: Path
) -> None:
    ended = bakeoff(
        "run",
        "engine=tgi",
        "launch=emulate",
        "launch.emulate.step_ms=5",
        "launch.emulate.natural_output_tokens=6",
        "launch.emulate.loading_s=1",
        "model=file",
        "model.name=tiny",
        "scenario=fixed",
        "scenario.input_tokens=40",
        "scenario.output_tokens=8",
        "load.users=2",
        "load.duration_s=null",
        "load.requests=20",
        "validity.max_lag_s=0.5",
        "name=natural",
    )
    assert ended.code == 0, ended.err
    (run,) = open_runs(tmp_path / "results").runs
    assert run.info.emulated is True
    assert (run.info.identity.model, run.info.identity.version) == ("tiny", "3.3.7")
    rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
    assert [row["error"] for row in rows] == [None] * 20
    by_reason: dict[str, set[int]] = {"eos_token": set(), "length": set()}
    for row in rows:
        by_reason[row["finish_reason"]].add(row["output_tokens"])
        assert len(row["chunk_s"]) == row["output_tokens"]
    assert by_reason["length"] == {8}
    assert min(by_reason["eos_token"]) < 8


@pytest.mark.parametrize("route", ["completions", "chat"])
def test_deepspeed_mii_is_measured_over_grpc_and_over_its_openai_server(
    route: str, bakeoff: CommandLine, tmp_path: Path
) -> None:
    ended = bakeoff(
        "run",
        "engine=deepspeed_mii",
        f"engine.route={route}",
        "engine.max_running=4",
        "launch=emulate",
        "launch.emulate.step_ms=10",
        "launch.emulate.natural_output_tokens=100000",
        "model=file",
        "model.name=tiny",
        "scenario=fixed",
        "scenario.input_tokens=40",
        "scenario.output_tokens=6",
        "load.users=3",
        "load.duration_s=null",
        "load.requests=12",
        "validity.max_lag_s=0.5",
        "name=mii",
    )
    assert ended.code == 0, ended.err
    (run,) = open_runs(tmp_path / "results").runs
    assert (run.info.engine, run.info.emulated) == ("deepspeed_mii", True)
    assert run.info.capabilities is not None
    assert run.info.capabilities.wire.value == ("grpc" if route == "completions" else "http")
    rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
    assert [row["error"] for row in rows] == [None] * 12
    assert {len(row["chunk_s"]) for row in rows} == {6}
    counted = {row["tokens_source"] for row in rows}
    assert counted == ({"usage"} if route == "completions" else {"chunks"})
    for row in rows:  # six steps of at least 10 ms each, never faster
        assert row["chunk_s"][-1] - row["sent_s"] >= 6 * 0.010


def test_an_engine_that_cannot_be_emulated_is_refused(bakeoff: CommandLine) -> None:
    ended = bakeoff("emulate", "nothing")
    assert ended.code == 2
    assert "engine=nothing: cannot be emulated; these can: " in ended.err
    ended = bakeoff("run", "launch.emulate.speed=60")
    assert (ended.code, "Traceback" in ended.err) == (2, False)
    assert "launch.emulate" in ended.err


def test_the_command_serves_until_it_is_stopped(bakeoff: CommandLine) -> None:
    process = bakeoff.start("emulate", "openai", "--step-ms", "5")
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith('emulated openai: {"slots": null')
        assert process.stdout.readline().startswith("listening on http://127.0.0.1:")
        process.terminate()
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    assert '"tokens": 0' in out


def test_a_bad_command_is_one_sentence(bakeoff: CommandLine) -> None:
    ended = bakeoff("emulate", "openai", "--speed", "0")
    assert (ended.code, ended.out) == (2, "")
    assert ended.lines == ["bakeoff: --speed=0.0: must be a finite number > 0 (1: real time)"]
    helped = bakeoff("emulate", "--help")
    assert helped.code == 0
    assert "--drift-per-hour" in helped.out
