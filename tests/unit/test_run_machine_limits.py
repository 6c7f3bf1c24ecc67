"""What this machine cannot carry is refused before the start, with both numbers."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config import (
    EngineConf,
    LaunchConf,
    LaunchMode,
    LoadConf,
    ModelConf,
    RunConf,
    ScenarioConf,
    Shape,
)
from harness.errors import ConfigError
from harness.run import machine_limits
from harness.run.machine_limits import check_limits
from harness.types import Wire


def conf(*, url: str = "http://127.0.0.1:9", **load: Any) -> RunConf:
    rate = {"shape": Shape.CONSTANT, "rate_rps": 100.0, "duration_s": 60.0}
    return RunConf(
        engine=EngineConf(name="openai"),
        model=ModelConf(name="m"),
        scenario=ScenarioConf(name="fixed", input_tokens=10, output_tokens=50),
        load=LoadConf(**{**rate, **load}),
        launch=LaunchConf(mode=LaunchMode.ATTACH, base_url=url),
    )


def calibrated(monkeypatch: pytest.MonkeyPatch, *, bound: bool = False, **routes: float) -> None:
    found = {
        name: SimpleNamespace(capacity_tokens_per_s=capacity, is_lower_bound=bound)
        for name, capacity in routes.items()
    }
    stored = SimpleNamespace(routes=found)
    monkeypatch.setattr(machine_limits, "read_calibration", lambda: stored)


@pytest.fixture(autouse=True)
def _not_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits, "read_calibration", lambda: None)


def refused(one: RunConf) -> str:
    with pytest.raises(ConfigError) as caught:
        check_limits(one)
    return str(caught.value)


def test_what_is_not_calibrated_is_not_refused() -> None:
    check_limits(conf())


def test_more_than_80_percent_of_the_calibrated_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated(monkeypatch, http=6000.0, tls=1e9)
    assert refused(conf()).startswith(
        "load: offers 5000 tokens/s, but the client is true up to 4800 on this machine (80 % of "
        "what bakeoff calibrate found, 1 worker); lower the load or raise load.workers"
    )
    check_limits(conf(rate_rps=95.0))
    check_limits(conf(workers=2))
    check_limits(conf(force=True))
    check_limits(conf(url="https://127.0.0.1:9"))
    check_limits(conf(), Wire.GRPC)
    calibrated(monkeypatch, http=1e9, grpc=6000.0)
    check_limits(conf())
    with pytest.raises(ConfigError, match="offers 5000 tokens/s"):
        check_limits(conf(), Wire.GRPC)


def test_a_lower_bound_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated(monkeypatch, bound=True, http=10.0)
    check_limits(conf())


def test_a_closed_load_has_no_rate_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated(monkeypatch, http=10.0)
    check_limits(conf(shape=Shape.USERS, users=4, rate_rps=None))


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        (
            "peak_connections",
            40_000,
            "load: up to 40000 connections at once, but this machine has 100 local ports; widen ",
        ),
        ("plan_memory_bytes", 10**15, "load: its plan needs 1000000.0 GB of memory, "),
    ],
)
def test_ports_and_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, value: int, message: str
) -> None:
    ports = tmp_path / "range"
    ports.write_text("1000\t1099\n")
    answer: Callable[[RunConf], int] = lambda _: value  # noqa: E731
    monkeypatch.setattr(machine_limits, "peak_connections", lambda _: 50)
    monkeypatch.setattr(machine_limits, limit, answer)
    monkeypatch.setattr(machine_limits, "_PORT_RANGE", ports)
    monkeypatch.setattr(machine_limits, "check_connections", lambda _: None)
    assert refused(conf()).startswith(message)
    assert refused(conf()).endswith("; load.force=true plays it all the same")
    check_limits(conf(force=True))


def test_connections_are_shared_out_over_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(machine_limits, "peak_connections", lambda _: 101)
    monkeypatch.setattr(machine_limits, "check_connections", asked.append)
    check_limits(conf(workers=2))
    assert asked == [51]
