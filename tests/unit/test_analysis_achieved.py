"""Achieved against asked, the client's own figures, and how requests ended (cases C48 to C55)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.cells import summarise
from harness.analysis.validity import run_doubts
from harness.testing.records import make_config, make_info, make_record, store_run
from harness.types import (
    ClientFacts,
    Doubt,
    ErrorClass,
    Level,
    Record,
    RunInfo,
    Severity,
)


def level(**changes: Any) -> Level:
    values: dict[str, Any] = {"index": 0, "name": "x", "shape": "users", "users": 1}
    return Level(**{**values, "window_end_s": 10.0, "drained_s": 10.0, **changes})


def info_of(one: Level, **changes: Any) -> RunInfo:
    return make_info(levels=(one,), **changes)


def doubts_of(tmp_path: Path, info: RunInfo, records: list[Record]) -> dict[str, Doubt]:
    found = run_doubts(store_run(tmp_path / "sweep", info, records))
    return {doubt.code: doubt for doubt in found}


def steady(n: int = 400, **changes: Any) -> list[Record]:
    return [
        make_record(i, due_s=t, chunk_s=(t + 0.05, t + 0.06), stream_end_s=t + 0.07, **changes)
        for i, t in enumerate(j * 10 / n for j in range(n))
    ]


def open_level(rate_rps: float, end_s: float, n: int, **changes: Any) -> Level:
    return level(
        name=f"constant={rate_rps:g}/s",
        shape="constant",
        users=None,
        rate_rps=rate_rps,
        window_end_s=end_s,
        drained_s=end_s,
        planned=n,
        **changes,
    )


def sent_at(n: int, due_rps: float, sent_rps: float) -> list[Record]:
    """Requests due at one rate by a client that can send at another, each done 5 ms later."""
    return [
        make_record(i, due_s=i / due_rps, sent_s=t, chunk_s=(t + 0.004, t + 0.005), stream_end_s=t)
        for i, t in enumerate(i / min(due_rps, sent_rps) for i in range(n))
    ]


def test_c48_a_pool_of_100_under_256_users_is_told(tmp_path: Path) -> None:
    users = level(name="users=256", users=256, window_end_s=3.0, drained_s=3.0)
    capped = [
        make_record(i, due_s=0.0, sent_s=i // 100 * 1.0, chunk_s=(i // 100 + 0.5, i // 100 + 1.0))
        for i in range(256)
    ]
    found = doubts_of(tmp_path / "a", info_of(users), capped)["concurrency_not_reached"]
    assert found.what == "256 users were asked for and 85.3 were active on average"
    assert found.severity is Severity.WARN
    free = [make_record(i, chunk_s=(0.5, 1.0)) for i in range(256)]
    reached = replace(users, window_end_s=1.0)
    assert "concurrency_not_reached" not in doubts_of(tmp_path / "b", info_of(reached), free)


def test_users_that_think_are_reached(tmp_path: Path) -> None:
    """Four users, half a second an answer and one and a half of thought."""
    records = [
        make_record(i, due_s=i // 4 * 2.0, chunk_s=(i // 4 * 2.0 + 0.2, i // 4 * 2.0 + 0.5))
        for i in range(20)
    ]
    thinking = level(name="users=4", users=4, think_s=1.5)
    assert "concurrency_not_reached" not in doubts_of(tmp_path / "a", info_of(thinking), records)
    found = doubts_of(tmp_path / "b", info_of(replace(thinking, think_s=0.0)), records)
    assert "4 users were asked for and 1.00 were active" in found["concurrency_not_reached"].what
    older = make_config(load={"shape": "users", "users": 4, "think_s": 1.5})
    info = info_of(replace(thinking, think_s=0.0), config=older)
    assert "concurrency_not_reached" not in doubts_of(tmp_path / "c", info, records)


def test_c50_a_rate_that_is_reached_raises_nothing(tmp_path: Path) -> None:
    records = sent_at(2000, 200, 1000)
    found = doubts_of(tmp_path, info_of(open_level(200, 10.0, 2000)), records)
    assert "rate_not_reached" not in found
    (cell,) = summarise(
        [store_run(tmp_path / "b", info_of(open_level(200, 10.0, 2000)), records)]
    ).cells
    assert cell.achieved[0].rate_rps == pytest.approx(200)
    assert cell.achieved[0].rate_reached_rps == pytest.approx(200)
    assert cell.workload.level == "constant=200/s"


def test_c50_an_impossible_rate_is_no_result_for_that_rate(tmp_path: Path) -> None:
    """800/s for 3 s (a tenth of the case) by a client that can do 300/s."""
    info = info_of(open_level(800, 3.0, 2400))
    run = store_run(tmp_path / "sweep", info, sent_at(2400, 800, 300))
    found = {doubt.code: doubt for doubt in run_doubts(run)}
    doubt = found["rate_not_reached"]
    assert doubt.severity is Severity.INVALID
    assert doubt.what.startswith("800 requests/s were due and 301/s were sent (37.6 %; P99 lag 4.9")
    (cell,) = summarise([run]).cells
    assert cell.workload.level == "constant=800/s (rate not reached)"
    assert cell.achieved[0].rate_reached_rps == pytest.approx(300, rel=0.01)


def test_requests_that_were_never_begun_count_as_due(tmp_path: Path) -> None:
    records = sent_at(900, 300, 300)
    info = info_of(open_level(800, 3.0, 2400))
    assert (
        "800 requests/s were due"
        in doubts_of(tmp_path / "a", info, records)["rate_not_reached"].what
    )
    cut = info_of(open_level(800, 3.0, 2400, is_cut=True))
    assert "rate_not_reached" not in doubts_of(tmp_path / "b", cut, records)
    older = info_of(open_level(800, 3.0, 2400), schema_version=1)
    assert "rate_not_reached" not in doubts_of(tmp_path / "c", older, records)


def test_c51_waiting_in_the_client_is_in_the_latency_and_named_apart(tmp_path: Path) -> None:
    records = [
        make_record(i, due_s=0.1 * i, sent_s=0.5 * i, chunk_s=(0.5 * i + 0.5,), output_tokens=1)
        for i in range(8)
    ]
    info = info_of(open_level(10, 0.8, 8))
    (cell,) = summarise([store_run(tmp_path / "sweep", info, records)]).cells
    assert cell.metrics["ttft_net_p50_s"].value == pytest.approx(0.5)
    assert cell.metrics["e2e_p50_s"].value == pytest.approx(1.7)  # 0.5, 0.9, ... 3.3: the fourth
    came = cell.achieved[0]
    assert (came.lag_mean_s, came.lag_max_s) == (pytest.approx(1.4), pytest.approx(2.8))
    codes = {doubt.code for doubt in cell.doubts}
    assert {"client_late", "rate_not_reached"} <= codes


def client(**changes: Any) -> Level:
    return level(client=ClientFacts(**changes), drained_s=10.0)


def test_a_client_that_was_fine_raises_nothing(tmp_path: Path) -> None:
    fine = client(cpu_s=4.0, stall_p99_s=0.001, stall_max_s=0.2, clock_step_s=5e-4)
    assert doubts_of(tmp_path, info_of(fine), steady(reads=4)) == {}


@pytest.mark.parametrize(
    ("code", "changes", "what"),
    [
        ("client_busy", {"cpu_s": 9.0}, "the client used 90.0 % of a core"),
        ("client_busy", {"cpu_s": 18.0, "workers": 2}, "in each of 2 workers"),
        ("loop_stalls", {"stall_p99_s": 0.02, "stall_max_s": 0.3}, "20.0 ms late to its timers"),
        ("clock_step", {"clock_step_s": -0.5}, "jumped by 500 ms"),
        ("unstamped_reads", {"unstamped_reads": 32}, "2.00 % of the reads"),
        ("worker_lost", {"workers": 3, "workers_lost": 1}, "1 of 3 load workers were lost"),
    ],
)
def test_what_the_client_saw_of_itself_becomes_a_doubt(
    code: str, changes: dict[str, Any], what: str, tmp_path: Path
) -> None:
    found = doubts_of(tmp_path, info_of(client(**changes)), steady(reads=4))
    assert set(found) == {code}
    assert what in found[code].what
    expected = Severity.INVALID if code == "worker_lost" else Severity.WARN
    assert found[code].severity is expected


def test_a_lost_request_shows_a_lost_worker(tmp_path: Path) -> None:
    lost = make_record(400, due_s=5.0, chunk_s=(), error=ErrorClass.WORKER_LOST, output_tokens=None)
    found = doubts_of(tmp_path, info_of(level()), [*steady(), lost])
    assert found["worker_lost"].severity is Severity.INVALID
    assert "and 1 requests with it" in found["worker_lost"].what


def test_a_level_that_was_cut_is_told(tmp_path: Path) -> None:
    cut = info_of(level(is_cut=True))
    assert doubts_of(tmp_path / "a", cut, steady())["cut_level"].severity is Severity.WARN
    probe = info_of(level(is_cut=True, shape="search"))
    assert "cut_level" not in doubts_of(tmp_path / "b", probe, steady())


def test_turns_that_fall_behind_the_window_were_never_due(tmp_path: Path) -> None:
    """Half of the planned turns were not begun: for arrivals a fault, for sessions none."""
    half = level(users=None, rate_rps=2.0, planned=800)
    arrivals = doubts_of(tmp_path / "a", info_of(replace(half, shape="poisson")), steady())
    assert arrivals["rate_not_reached"].severity is Severity.INVALID
    sessions = doubts_of(tmp_path / "b", info_of(replace(half, shape="sessions")), steady())
    assert "rate_not_reached" not in sessions


def test_connecting_that_shows_in_the_ttft_is_told(tmp_path: Path) -> None:
    found = doubts_of(tmp_path / "a", info_of(level()), steady(connect_s=0.006))["slow_connect"]
    assert found.what.startswith("100 % of the requests had to connect, which took up to 6.00 ms")
    assert "slow_connect" not in doubts_of(
        tmp_path / "b", info_of(level()), steady(connect_s=0.004)
    )
    once = [*steady(399), make_record(399, due_s=9.99, connect_s=0.2, chunk_s=(10.05, 10.06))]
    assert "slow_connect" not in doubts_of(tmp_path / "c", info_of(level()), once)


def calibrated(**changes: Any) -> dict[str, Any]:
    facts = dict(make_info().facts)
    values = {"capacity_tokens_per_s": 100.0, "measured_at": "2026-11-30T00:00:00Z", **changes}
    facts["calibration"] = {"http": values, "tls": {"capacity_tokens_per_s": 1.0}}
    return facts


@pytest.mark.parametrize(
    ("capacity", "bound", "severity"),
    [
        (101.0, False, None),
        (90.0, False, Severity.WARN),
        (79.0, False, Severity.INVALID),
        (90.0, True, None),
        (79.0, True, Severity.WARN),
    ],
)
def test_output_above_the_calibrated_capacity(
    capacity: float, bound: bool, severity: Severity | None, tmp_path: Path
) -> None:
    """400 requests of 2 tokens in 10 s: 80 tokens/s."""
    facts = calibrated(capacity_tokens_per_s=capacity, is_lower_bound=bound)
    found = doubts_of(tmp_path, info_of(level(), facts=facts), steady())
    assert found.get("above_calibration", Doubt(code="", what="", advice="")).severity is (
        severity or Severity.WARN
    )
    assert ("above_calibration" in found) is (severity is not None)


def test_workers_share_the_capacity(tmp_path: Path) -> None:
    facts = calibrated(capacity_tokens_per_s=60.0)
    assert "above_calibration" in doubts_of(tmp_path / "a", info_of(level(), facts=facts), steady())
    two = level(client=ClientFacts(workers=2))
    assert "above_calibration" not in doubts_of(tmp_path / "b", info_of(two, facts=facts), steady())


def refused(index: int, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "due_s": 5.0,
        "chunk_s": (),
        "output_tokens": None,
        "error": ErrorClass.RATE_LIMITED,
        "http_status": 429,
        "retry_after_s": 1.0,
        **changes,
    }
    return make_record(index, **values)


def test_c53_a_request_that_is_refused_is_told(tmp_path: Path) -> None:
    found = doubts_of(tmp_path, info_of(level()), [*steady(), refused(400)])["rate_limited"]
    assert found.what == "1 of 401 requests were refused with 429, asked to wait up to 1.00 s"


def test_c53_a_request_that_was_sent_again_is_timed_from_the_first(tmp_path: Path) -> None:
    again = make_record(400, due_s=5.0, chunk_s=(6.055,), attempts=2, output_tokens=1)
    run = store_run(tmp_path / "sweep", info_of(level()), [*steady(), again])
    found = {doubt.code: doubt for doubt in run_doubts(run)}["retried"]
    assert found.severity is Severity.NOTE
    assert found.what.startswith("1 of 401 requests were refused with 429 and sent again, up to 2")
    (cell,) = summarise([run]).cells
    assert cell.achieved[0].retried == 1
    (alone,) = summarise([store_run(tmp_path / "b", info_of(level()), [again])]).cells
    assert alone.metrics["ttft_p50_s"].value == pytest.approx(1.055)


def test_c55_timeouts_stand_beside_the_percentiles_with_their_limit(tmp_path: Path) -> None:
    config = make_config(load={"shape": "users", "users": 1, "request_timeout_s": 2.0})
    late = make_record(400, due_s=5.0, chunk_s=(5.02,), output_tokens=1, error=ErrorClass.TIMEOUT)
    info = info_of(level(), config=config)
    run = store_run(tmp_path / "sweep", info, [*steady(), late])
    found = {doubt.code: doubt for doubt in run_doubts(run)}["timeouts"]
    assert found.what == ("1 of 401 requests had no end after load.request_timeout_s=2.00")
    (cell,) = summarise([run]).cells
    assert (cell.n, cell.n_failed, cell.n_timed_out, cell.request_timeout_s) == (401, 1, 1, 2.0)
    assert cell.metrics["e2e_p50_s"].n == 401


def test_a_run_of_the_first_version_is_not_doubted_for_what_it_could_not_know(
    tmp_path: Path,
) -> None:
    old = info_of(level(), schema_version=1)
    records = [
        replace(r, attempts=None, group=None, worker=None)  # type: ignore[arg-type]
        for r in steady()
    ]
    assert doubts_of(tmp_path, old, records) == {}
    (cell,) = summarise([store_run(tmp_path / "b", old, records)]).cells
    came = cell.achieved[0]
    unknown = (came.stall_p99_s, came.clock_step_s, came.unstamped_ratio, came.capacity_ratio)
    assert unknown == (None, None, None, None)
    assert came.retried == 0
