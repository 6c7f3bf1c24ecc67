"""The arithmetic of a calibration, on hand-made points."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.calibrate import measure, stored
from harness.calibrate.calibrate import calibrate_route
from harness.calibrate.capacity import conclude
from harness.calibrate.compare import compare, cpu_us_per_token
from harness.calibrate.cores import Cores
from harness.calibrate.identity import Identity, identify, machine_name
from harness.calibrate.ladder import FULL, QUICK
from harness.calibrate.point import Finding, Load, Point
from harness.calibrate.routes import ROUTES, Route
from harness.calibrate.server.log import StreamLog, WrittenLog, read_log
from harness.calibrate.stored import (
    Calibration,
    find_calibration,
    read_calibration,
    to_facts,
    write_calibration,
)
from harness.errors import ConfigError, InvalidRunError

WHEN = "2026-11-30T12:00:00+00:00"
MACHINE = {
    "cpu_model": "Intel(R) Xeon(R) 8488C",
    "cores_logical": 2,
    "kernel": "6.1",
    "python": "3.11.9",
    "bakeoff": "0.1.0",
}
GOOD = Point(
    streams=16,
    tokens_per_s=50.0,
    offered_tokens_per_s=780.0,
    requests=200,
    failed=0,
    ttft_error_p99_s=1e-5,
    gap_error_p99_s=-2e-5,
    ttft_worst_error_s=4e-5,
    taken_ratio=1.0,
    merged_ratio=0.0,
    kernel_ratio=1.0,
    cpu_us_per_token=20.0,
    server_late_p99_s=2e-4,
)


def point(streams: int = 256, tokens_per_s: float = 50.0, **more: Any) -> Point:
    offered = 0.97 * streams * tokens_per_s
    values = {"streams": streams, "tokens_per_s": tokens_per_s, "offered_tokens_per_s": offered}
    return replace(GOOD, **{**values, **more})


@pytest.mark.parametrize(
    ("more", "finding"),
    [
        ({}, Finding.GOOD),
        ({"ttft_error_p99_s": 1e-3, "gap_error_p99_s": -1e-3}, Finding.GOOD),
        ({"ttft_error_p99_s": 1.001e-3}, Finding.TTFT_WRONG),
        ({"ttft_error_p99_s": -1.001e-3}, Finding.TTFT_WRONG),
        ({"gap_error_p99_s": 1.001e-3}, Finding.GAPS_WRONG),
        ({"taken_ratio": 0.99}, Finding.GOOD),
        ({"taken_ratio": 0.9899, "ttft_error_p99_s": 1.0}, Finding.TOKENS_LOST),
        ({"server_late_p99_s": 2e-3}, Finding.GOOD),
        ({"server_late_p99_s": 2.1e-3, "ttft_error_p99_s": 1.0}, Finding.SERVER_LATE),
    ],
)
def test_a_point_is_good_up_to_its_limits(more: dict[str, Any], finding: Finding) -> None:
    assert point(**more).finding is finding


def test_the_capacity_is_the_highest_offered_rate_that_was_good() -> None:
    points = [
        point(16),
        point(1000, gap_error_p99_s=2e-3, cpu_us_per_token=9.0),
        point(256, 75.0, ttft_error_p99_s=-3e-4, cpu_us_per_token=11.0),
        point(256, 112.5, taken_ratio=0.5),
    ]
    result = conclude("http", points, measured_at=WHEN)
    assert result.capacity_tokens_per_s == 0.97 * 256 * 75
    assert result.is_lower_bound is False
    assert result.ttft_error_p99_s == 3e-4
    assert result.gap_error_p99_s == 2e-5
    assert result.cpu_us_per_token == 11.0
    assert result.points == tuple(points)


def test_it_is_a_lower_bound_when_no_higher_load_failed_by_the_clients_fault() -> None:
    below = point(16, ttft_error_p99_s=0.1)
    late = point(256, 112.5, server_late_p99_s=0.05)
    assert conclude("tls", [below, point(256)], measured_at=WHEN).is_lower_bound
    result = conclude("tls", [below, point(256), late], measured_at=WHEN)
    assert result.is_lower_bound
    assert result.capacity_tokens_per_s == 0.97 * 256 * 50
    slowed = point(256, 112.5, ttft_error_p99_s=0.1, offered_tokens_per_s=9000.0)
    assert not conclude("tls", [point(256), slowed], measured_at=WHEN).is_lower_bound


@pytest.mark.parametrize("points", [[], [point(taken_ratio=0.1)], [point(server_late_p99_s=1.0)]])
def test_without_a_good_load_there_is_no_capacity(points: list[Point]) -> None:
    result = conclude("http", points, measured_at=WHEN)
    assert result.capacity_tokens_per_s is None
    assert result.is_lower_bound is False
    assert result.ttft_error_p99_s is None
    assert result.cpu_us_per_token is None


def climbed(judge: Callable[[Load], dict[str, float]]) -> list[tuple[int, float]]:
    """What is played, in order, when every load ends as `judge` says."""

    def play(_route: Route, load: Load, _cores: Cores) -> Point:
        return point(load.streams, load.tokens_per_s, **judge(load))

    result = calibrate_route(ROUTES["http"], FULL, Cores(client=0, server=1), measure=play)
    return [(p.streams, p.tokens_per_s) for p in result.points]


BASE = [(16, 50.0), (64, 50.0), (256, 50.0), (1000, 50.0)]


def test_the_climb_goes_on_until_a_load_fails_and_then_halfway_back() -> None:
    def judge(load: Load) -> dict[str, float]:
        return {"gap_error_p99_s": 2e-3} if load.asked_tokens_per_s > 90_000 else {}

    played = climbed(judge)
    assert played[:4] == BASE
    first, second, halfway = played[4:]
    assert first == (256, 253.125)  # the first rung above 1000 x 50
    assert second == (256, 379.6875)
    assert halfway[1] == pytest.approx((253.125 * 379.6875) ** 0.5)


def test_it_starts_from_the_best_good_load_and_passes_over_a_failed_one() -> None:
    def judge(load: Load) -> dict[str, float]:
        return {"gap_error_p99_s": 2e-3} if load.streams == 1000 or load.tokens_per_s > 80 else {}

    assert climbed(judge)[4:6] == [(256, 75.0), (256, 112.5)]
    assert len(climbed(judge)) == 7


def test_a_late_server_or_no_good_load_ends_it() -> None:
    late = climbed(lambda load: {"server_late_p99_s": 1.0} if load.tokens_per_s > 50 else {})
    assert late == [*BASE, (256, 253.125)]
    assert climbed(lambda _load: {"taken_ratio": 0.0}) == BASE


def test_it_ends_even_if_nothing_ever_fails() -> None:
    played = climbed(lambda _load: {})
    assert 256 * played[-1][1] <= 1e6
    assert len(played) < 15


def test_a_quick_calibration_is_one_small_load() -> None:
    load = QUICK.next_load([])
    assert load is not None
    assert load.asked_tokens_per_s < 1000
    assert QUICK.next_load([point(load.streams)]) is None


LOAD = Load(streams=2, tokens_per_s=4.0, requests=2, tokens=3)


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Requests 1 and 0: TTFT 0.5 s, gaps 0.25 s; the last send of each is 0.5 s late."""
    written = StreamLog()
    for index, arrival_s in ((1, 100.0), (0, 101.0)):
        row = written.add_request(index=index, arrival_s=arrival_s, is_kernel=True, tokens=3)
        for k in range(4):
            due_s = arrival_s + 0.5 + min(k, 2) * 0.25
            written.add_event(row, k, due_s, due_s + (0.5 if k == 2 else 0.0))
    written.write(tmp_path / "log", settings={})
    return read_log(tmp_path / "log")


def row(index: int, sent_s: float, *chunk_s: float, **more: object) -> dict[str, Any]:
    values: dict[str, Any] = {"index": index, "sent_s": sent_s, "chunk_s": list(chunk_s)}
    values |= {"phase": "measure", "error": None, "reads": 2, "merged_reads": 0}
    return {**values, "clock": "kernel", "level": 1, **more}


def test_requests_are_matched_by_index_and_the_tails_compared(log: WrittenLog) -> None:
    rows = [
        row(0, 1.0, 1.625, 1.875, 2.625),
        row(1, 0.0, 0.5, 0.75, 1.75, merged_reads=1, clock="user"),
        row(5, 0.0, 9.5, phase="warmup"),
    ]
    found = compare(rows, log, LOAD, cpu_us_per_token=7.0)
    assert found.requests == 2
    assert found.failed == 0
    assert found.ttft_error_p99_s == 0.125
    assert found.ttft_worst_error_s == 0.125
    assert found.gap_error_p99_s == 0.25  # 1.0 against the server's 0.75
    assert found.offered_tokens_per_s == 3.0  # 6 tokens, from 100 to the last due, 102
    assert found.taken_ratio == 1.0
    assert found.merged_ratio == 0.25
    assert found.kernel_ratio == 0.5
    assert found.cpu_us_per_token == 7.0
    assert found.server_late_p99_s == 0.5


def test_what_failed_or_was_never_seen_is_missing(log: WrittenLog) -> None:
    rows = [row(0, 1.0, 1.5, 2.0), row(1, 0.0, 0.5, error="timeout"), row(7, 0.0, 0.5)]
    found = compare(rows, log, LOAD)
    assert (found.requests, found.failed) == (3, 2)
    assert found.taken_ratio == pytest.approx(2 / 9)


@pytest.mark.parametrize("rows", [[], [row(9, 1.0, 1.5)], [row(0, 1.0)]])
def test_nothing_to_compare_is_an_error(log: WrittenLog, rows: list[Any]) -> None:
    with pytest.raises(InvalidRunError, match="none of"):
        compare(rows, log, LOAD)


class _Level:
    def __init__(self, index: int, cpu_s: float | None) -> None:
        self.index = index
        self.client = type("Client", (), {"cpu_s": cpu_s})()


class _Run:
    """As much of a stored run as is asked for."""

    def __init__(self, *levels: _Level) -> None:
        self.info = type("Info", (), {"levels": levels})()

    def host_samples(self) -> Any:
        samples = [{"t_s": t, "client_cpu_ratio": r} for t, r in ((0, None), (2, 0.5), (3, 1.0))]
        return type("Table", (), {"to_pylist": lambda _self: samples})()


def test_the_cpu_of_a_token_is_the_levels_own_or_the_hosts() -> None:
    rows = [row(0, 0.0, 1.0, 2.0), row(1, 0.0, 1.0, 2.0, level=0)]
    own: Any = _Run(_Level(0, None), _Level(1, 0.5))
    assert cpu_us_per_token(own, rows) == 250_000
    assert cpu_us_per_token(own, []) is None
    sampled: Any = _Run(_Level(0, None))
    assert cpu_us_per_token(sampled, rows) == 500_000


def test_a_load_that_is_not_good_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [point(server_late_p99_s=1.0), point(), point()]
    monkeypatch.setattr(measure, "_play", lambda *_: points.pop(0))
    cores = Cores(client=0, server=1)
    assert measure.measure_point(ROUTES["http"], LOAD, cores) == point(tries=2)
    assert measure.measure_point(ROUTES["http"], LOAD, cores) == point(tries=1)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BAKEOFF_CACHE", str(tmp_path))
    monkeypatch.setattr(stored, "identify", lambda machine=None: identify(machine or MACHINE))
    return tmp_path


def calibration(*routes: str, kernel: str = "6.1") -> Calibration:
    results = {name: conclude(name, [point()], measured_at=WHEN) for name in routes}
    return Calibration(identity=identify({**MACHINE, "kernel": kernel}), routes=results)


def test_a_calibration_comes_back_as_it_was_stored(cache: Path) -> None:
    assert read_calibration() is None
    assert "not calibrated; run: bakeoff calibrate" in find_calibration().reason
    path = write_calibration(calibration("http"))
    assert path == cache / "calibration" / "intel-xeon-8488c-2-cores.json"
    assert read_calibration() == calibration("http")
    assert find_calibration().reason == ""


def test_routes_are_added_and_renewed_one_by_one(cache: Path) -> None:
    write_calibration(calibration("http", "tls"))
    newer = conclude("tls", [], measured_at="2027-01-01T00:00:00+00:00")
    write_calibration(replace(calibration(), routes={"tls": newer}))
    found = read_calibration()
    assert found is not None
    assert found.routes == {**calibration("http").routes, "tls": newer}
    write_calibration(calibration("tls", kernel="6.2"))
    now_stale = json.loads(next((cache / "calibration").glob("*.json")).read_text())
    assert list(now_stale["routes"]) == ["tls"]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("kernel", "6.2", "kernel 6.1 then, 6.2 now"),
        ("python", "3.12.1", "python 3.11.9 then, 3.12.1 now"),
        ("bakeoff", "0.2.0", "bakeoff 0.1.0 then, 0.2.0 now"),
    ],
)
def test_a_stale_one_is_not_used_and_says_why(
    cache: Path, key: str, value: str, reason: str
) -> None:
    write_calibration(calibration("http"))
    found = find_calibration({**MACHINE, key: value})
    assert cache.exists()
    assert found.calibration is None
    assert reason in found.reason
    assert read_calibration({**MACHINE, key: value}) is None
    assert read_calibration(MACHINE) is not None


@pytest.mark.parametrize("text", ["", "{}", '{"identity": 3, "routes": {}}', "[]"])
def test_a_damaged_one_is_not_used(cache: Path, text: str) -> None:
    path = write_calibration(calibration("http"))
    path.write_text(text)
    assert cache in path.parents
    assert "cannot be read" in find_calibration().reason


def test_one_of_another_format_is_not_used(cache: Path) -> None:
    path = write_calibration(calibration("http"))
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    assert cache in path.parents
    assert "format 2 then, 1 now" in find_calibration().reason


def test_machines_have_names_and_unlike_ones_unlike_names() -> None:
    nothing = Identity(cpu_model=None, cores=None, kernel=None, python=None, bakeoff=None)
    assert machine_name(nothing) == "unknown-cpu"
    assert machine_name(identify({**MACHINE, "cores_logical": 64})).endswith("8488c-64-cores")


def test_the_facts_are_plain_values() -> None:
    facts = to_facts(calibration("http", "tls"))
    assert facts == json.loads(json.dumps(facts))
    assert set(facts) == {"http", "tls"}
    http = facts["http"]
    assert http["capacity_tokens_per_s"] == 0.97 * 256 * 50
    assert http["is_lower_bound"] is True
    assert http["ttft_error_p99_s"] == 1e-5
    assert http["gap_error_p99_s"] == 2e-5
    assert http["cpu_us_per_token"] == 20.0
    assert http["measured_at"] == WHEN
    assert [p["finding"] for p in http["points"]] == ["good"]
    assert "route" not in http


def test_a_failed_client_is_told_by_its_own_words(tmp_path: Path) -> None:
    argv = ["sh", "-c", "echo first >&2; echo 'launch: no' >&2; exit 2"]
    with pytest.raises(ConfigError, match="code 2: launch: no"):
        measure._run_client(argv, tmp_path)
