import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.calibrate.point import Point

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("bench_truth")


def point(streams: int = 256, **changes: Any) -> Point:
    values: dict[str, Any] = {
        "streams": streams,
        "tokens_per_s": 50.0,
        "offered_tokens_per_s": streams * 50.0,
        "requests": 6 * streams,
        "failed": 0,
        "ttft_error_p99_s": 0.0005,
        "gap_error_p99_s": -0.001,
        "ttft_worst_error_s": 0.002,
        "taken_ratio": 0.99,
        "merged_ratio": 0.001,
        "kernel_ratio": 1.0,
        "cpu_us_per_token": 12.0,
        "server_late_p99_s": 0.002,
    }
    return Point(**{**values, **changes})


def test_limits_are_kept_up_to_their_edge(truth: Any) -> None:
    assert truth.missed(point()) == []
    assert truth.missed(point(1000, gap_error_p99_s=0.003)) == []
    assert truth.missed(point(64, cpu_us_per_token=40.0)) == []
    assert truth.missed(point(cpu_us_per_token=40.0), route="tls") == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"ttft_error_p99_s": -0.00051}, "TTFT"),
        ({"gap_error_p99_s": 0.0011}, "gaps"),
        ({"gap_error_p99_s": 0.0031, "streams": 1000}, "gaps"),
        ({"taken_ratio": 0.989}, "tokens"),
        ({"failed": 1}, "failed"),
        ({"cpu_us_per_token": 12.1}, "CPU"),
        ({"cpu_us_per_token": None}, "CPU"),
        ({"server_late_p99_s": 0.0021}, "server late"),
    ],
)
def test_each_limit_that_is_missed_is_named(truth: Any, changes: dict[str, Any], name: str) -> None:
    missed = point(**changes)
    assert truth.missed(missed) == [name]
    assert truth.row(missed).endswith(f"  {name}")


def test_a_row_says_milliseconds_and_microseconds(truth: Any) -> None:
    assert truth.row(point()).split() == [
        "256", "1536", "+0.500", "-1.000", "2.000", "99.00%", "0.10%", "12.0", "2.000",
    ]  # fmt: skip
    assert len(truth.row(point())) == len(truth._HEAD)
