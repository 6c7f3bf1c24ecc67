"""`bakeoff calibrate`: its table and JSON, its refusals, and once for real."""

import json
import os
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from harness.calibrate import cores
from harness.calibrate.capacity import conclude
from harness.calibrate.cores import choose_cores, pinned
from harness.calibrate.point import Point
from harness.calibrate.routes import ROUTES, choose_routes
from harness.cli.calibrate import print_results, verdict_line
from harness.errors import ConfigError
from harness.testing.command_line import CommandLine

POINT = Point(
    streams=256,
    tokens_per_s=50.0,
    offered_tokens_per_s=12_405.9,
    requests=1024,
    failed=0,
    ttft_error_p99_s=1.2e-5,
    gap_error_p99_s=-2.5e-4,
    ttft_worst_error_s=6e-5,
    taken_ratio=1.0,
    merged_ratio=0.0123,
    kernel_ratio=1.0,
    cpu_us_per_token=11.26,
    server_late_p99_s=1.48e-4,
)


def test_the_table_shows_errors_in_ms_with_their_sign() -> None:
    result = conclude("http", [POINT], measured_at="2026-11-30T12:00:00+00:00")
    out = StringIO()
    print_results(Console(file=out, width=80), [result])
    first, *rest = out.getvalue().splitlines()
    assert first == "http: at least 12,405 tokens/s within 1 ms, 11.3 us of CPU a token"
    cells = rest[-1].split()
    assert cells[:5] == ["256", "12,405", "+0.012", "-0.250", "100.0%"]
    assert cells[5:] == ["1.2%", "11.3", "0.148", "good"]


def test_no_capacity_is_said_in_words() -> None:
    result = conclude("tls", [], measured_at="2026-11-30T12:00:00+00:00")
    assert verdict_line(result) == "tls: no load was measured within 1 ms"


def test_routes_are_chosen_by_name() -> None:
    assert [r.name for r in choose_routes("tls, http,tls")] == ["tls", "http"]
    assert [r.name for r in choose_routes("")] == list(ROUTES) == ["http", "tls", "grpc"]
    with pytest.raises(ConfigError, match="'udp' is not one of http, tls, grpc"):
        choose_routes("http,udp")


def test_one_core_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3})
    with pytest.raises(ConfigError, match=r"needs two cores and may use 1 \(core 3\)"):
        choose_cores(None, None)


def test_cores_are_kept_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 4, 5})
    monkeypatch.setattr(cores, "_TOPOLOGY", tmp_path)
    for cpu, siblings in ((0, "0,4"), (1, "1,5"), (4, "0,4"), (5, "1,5")):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    assert choose_cores(None, None) == cores.Cores(client=0, server=5)
    assert choose_cores(1, None) == cores.Cores(client=1, server=4)
    assert choose_cores(None, 0) == cores.Cores(client=1, server=0)
    assert choose_cores(0, 4) == cores.Cores(client=0, server=4, are_siblings=True)
    with pytest.raises(ConfigError, match="--client-cpu=2: must be one of 0, 1, 4, 5"):
        choose_cores(2, None)
    with pytest.raises(ConfigError, match="must be two cores"):
        choose_cores(1, 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux pins to cores")
def test_pinning_lasts_as_long_as_the_block() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(RuntimeError), pinned(min(before)):
        assert os.sched_getaffinity(0) == {min(before)}
        raise RuntimeError
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)
@pytest.mark.timeout(300)
def test_a_quick_calibration_for_real_prints_json_and_stores_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    bakeoff = CommandLine(cwd=tmp_path, env={"BAKEOFF_CACHE": str(cache)})
    ended = bakeoff("calibrate", "--routes", "http", "--quick", "--json", timeout_s=280)
    assert ended.code in {0, 3}, ended.err  # 3: the machine was too busy for any load to be good
    http = json.loads(ended.out)["http"]
    (point,) = http["points"]
    assert (point["streams"], point["requests"]) == (8, 24)
    assert point["taken_ratio"] == 1.0
    assert point["kernel_ratio"] == 1.0
    assert point["failed"] == 0
    assert point["cpu_us_per_token"] > 0
    assert "not stored" in ended.err
    assert not (cache / "calibration").exists()
