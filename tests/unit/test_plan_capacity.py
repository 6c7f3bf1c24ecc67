"""What a job asks of the machine: connections, memory, disk, tokens a second."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.config import (
    Lengths,
    LevelConf,
    LoadConf,
    RunConf,
    ScenarioConf,
    SearchConf,
    Shape,
    SloConf,
    TraceConf,
)
from harness.plan.capacity import (
    BURST_USERS,
    calls_bytes,
    most_due,
    offered_tokens_per_s,
    peak_connections,
    plan_memory_bytes,
)

SCENARIO = ScenarioConf(name="s", input_tokens=100, output_tokens=50)
LONG = replace(SCENARIO, output_tokens=400)


def conf(scenario: ScenarioConf = SCENARIO, **load: Any) -> RunConf:
    return RunConf(
        scenario=scenario,
        load=LoadConf(**load),
        slo=SloConf(name="x", ttft_s=1.0),
    )


def test_the_most_due_within_a_window() -> None:
    due_s = [0.0, 0.5, 1.0, 1.0, 5.0, 5.4, 9.0]
    assert most_due(due_s, 1.0) == 4
    assert most_due(due_s, 0.0) == 2
    assert most_due(due_s, 100.0) == 7
    assert most_due([], 1.0) == 0


def test_closed_levels_need_their_users() -> None:
    levels = [LevelConf(users=3, requests=9), LevelConf(users=40, requests=90)]
    assert peak_connections(conf(shape=Shape.LEVELS, levels=levels)) == 40


def test_open_levels_need_what_is_due_while_the_slowest_request_is_open() -> None:
    # 50 tokens at 250 ms and 100 at 20 ms: 14.5 s; 400 tokens: cut at 30 s
    constant: dict[str, Any] = {"shape": Shape.CONSTANT, "rate_rps": 100, "duration_s": 60}
    assert peak_connections(conf(**constant)) == 1451
    assert peak_connections(conf(LONG, **constant)) == 3001
    assert peak_connections(conf(request_timeout_s=2.0, **constant)) == 201
    assert peak_connections(conf(**{**constant, "duration_s": 1})) == 100


def test_sessions_need_as_many_as_overlap() -> None:
    turns = replace(SCENARIO, turns=3)
    load: dict[str, Any] = {
        "shape": Shape.SESSIONS,
        "rate_rps": 2,
        "duration_s": 400,
        "think_s": 10,
    }
    found = peak_connections(conf(turns, **load))  # 3 turns of 14.5 s and 2 pauses of 10 s
    assert 63.5 * 2 < found < 63.5 * 2 * 1.5


def test_a_search_needs_what_its_highest_rate_needs() -> None:
    assert peak_connections(conf(shape=Shape.SEARCH)) == BURST_USERS
    given = SearchConf(rate_high_rps=20)
    assert peak_connections(conf(shape=Shape.SEARCH, search=given)) == 290
    again = SearchConf(confirm_rates=[4.0, 8.0])
    assert peak_connections(conf(shape=Shape.SEARCH, search=again)) == 116


def test_memory_is_a_row_a_request_and_process() -> None:
    load: dict[str, Any] = {"shape": Shape.CONSTANT, "rate_rps": 100, "requests": 1000}
    assert plan_memory_bytes(conf(**load)) == 1000 * (2 * 48 + 8)
    assert plan_memory_bytes(conf(workers=4, remote_workers=1, **load)) == 1000 * (4 * 48 + 8)
    assert plan_memory_bytes(conf(shape=Shape.SEARCH)) == 4 * 850 * (2 * 48 + 8)


def test_calls_take_their_prompts_on_disk() -> None:
    assert calls_bytes(conf(users=4, requests=10)) == 10 * (500 + 6 * 100)


def test_offered_tokens_are_those_of_the_highest_rate() -> None:
    assert offered_tokens_per_s(conf(users=4, requests=10)) is None
    constant: dict[str, Any] = {"shape": Shape.CONSTANT, "rate_rps": 10, "duration_s": 60}
    assert offered_tokens_per_s(conf(**constant)) == pytest.approx(500)
    ramp: dict[str, Any] = {"shape": Shape.RAMP, "rate_rps": 1, "rate_to_rps": 20, "duration_s": 60}
    assert offered_tokens_per_s(conf(**ramp)) == pytest.approx(1000)
    assert offered_tokens_per_s(conf(shape=Shape.SEARCH)) is None
    given = SearchConf(rate_high_rps=20)
    assert offered_tokens_per_s(conf(shape=Shape.SEARCH, search=given)) == pytest.approx(1000)
    sessions: dict[str, Any] = {"shape": Shape.SESSIONS, "rate_rps": 2, "duration_s": 500}
    turns = replace(SCENARIO, turns=4)
    assert offered_tokens_per_s(conf(turns, **sessions)) == pytest.approx(400, rel=0.15)


def test_a_trace_counts_its_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("time,input_tokens,output_tokens\n0,10,20\n2,200,80\n10,30,40\n")
    trace = replace(SCENARIO, lengths=Lengths.TRACE)
    job = conf(trace, shape=Shape.TRACE, trace=TraceConf(path=str(path)))
    assert offered_tokens_per_s(job) == (20 + 50 + 40) / 10
    assert calls_bytes(job) == 3 * 500 + 6 * (10 + 100 + 30)
    assert plan_memory_bytes(job) == 3 * (2 * 48 + 8) + 3 * 24
    assert peak_connections(job) == 3
