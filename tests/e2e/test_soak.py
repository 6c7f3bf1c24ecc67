"""Hours in half a minute: an emulated server with a known drift and leak, at 60 times its speed."""

from pathlib import Path

import pytest

from harness.analysis.cells import summarise
from harness.store import open_runs
from harness.testing.command_line import CommandLine

SPEED = 60.0
STEP_MS = 20.0
DRIFT_PER_HOUR = 0.5
LEAK_BYTES_PER_HOUR = 2e8  # of the engine's own hours


def test_a_soak_finds_the_drift_and_the_leak_that_were_put_in(
    bakeoff: CommandLine, tmp_path: Path
) -> None:
    ended = bakeoff(
        "run",
        "experiment=soak",
        "engine=openai",
        "launch=emulate",
        f"launch.emulate.speed={SPEED}",
        f"launch.emulate.step_ms={STEP_MS}",
        f"launch.emulate.drift_per_hour={DRIFT_PER_HOUR}",
        f"launch.emulate.memory_growth_bytes_per_hour={LEAK_BYTES_PER_HOUR}",
        "warmup.mode=quick",
        "validity.max_lag_s=0.5",  # other tests may run beside it
        "load.rate_rps=20",
        "load.duration_s=30",
        "scenario.input_tokens=64",
        "scenario.output_tokens=24",
        "scenario.output_tokens_min=16",
        f"store={tmp_path}",
        "name=soak",
    )
    assert ended.code == 0, ended.err
    summary = summarise(open_runs(tmp_path).runs)
    assert all(cell.emulated for cell in summary.cells)
    found = {measure.name: measure.figures for measure in summary.measures}
    (tpot,) = [f.value for f in found["drift"] if "TPOT" in f.label]
    # an hour of ours is 60 of the engine's, and a step takes a 60th of its time
    expected_s = STEP_MS * 1e-3 * DRIFT_PER_HOUR
    assert tpot.value == pytest.approx(expected_s, rel=0.1)
    assert tpot.ci_low is not None
    assert 0 < tpot.ci_low < tpot.value
    (leak,) = [f.value for f in found["memory_growth"]]
    assert leak.value == pytest.approx(LEAK_BYTES_PER_HOUR * SPEED, rel=0.1)
    said = " ".join(ended.out.split())
    assert "Drift, openai: median TPOT" in said
    assert "Memory growth, openai: engine memory" in said
