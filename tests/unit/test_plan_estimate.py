"""What a sweep will take: exact sums on small jobs."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.config import (
    EngineConf,
    GroupConf,
    HardwareConf,
    Lengths,
    LoadConf,
    PriceConf,
    RunConf,
    ScenarioConf,
    SearchConf,
    Shape,
    SloConf,
    TraceConf,
    WarmupConf,
)
from harness.plan.estimate import Bounds, estimate

PRICED = HardwareConf(
    price=PriceConf(per_hour=6.0, currency="EUR", date="2026-11-30", source="invoice")
)
JOB = RunConf(
    engine=EngineConf(name="a", ready_timeout_s=60, stop_timeout_s=10),
    scenario=ScenarioConf(name="chat", input_tokens=100, output_tokens=50),
    load=LoadConf(shape=Shape.CONSTANT, rate_rps=2, duration_s=30, settle_s=0),
    warmup=WarmupConf(max_s=30),
)


def test_an_open_level_lasts_its_span_and_its_drain() -> None:
    told = estimate([JOB])
    assert told.jobs == 1
    assert told.requests == Bounds(low=60, high=60)
    # start 2..60, warm-up 1..30, stop 0..10; span 30 and a drain of 50 * .25 + 100 * .02 = 14.5
    assert told.minutes.low == pytest.approx((2 + 1 + 30) / 60)
    assert told.minutes.high == pytest.approx((60 + 30 + 10 + 30 + 14.5) / 60)
    assert told.disk_bytes.low == 60 * (50 * (235 + 4) + 100)
    assert told.disk_bytes.high == 60 * (50 * (300 + 12) + 500)
    assert told.money is None


def test_a_closed_level_by_requests_lasts_as_long_as_its_rounds() -> None:
    load = LoadConf(users=4, requests=10, think_s=1.0, settle_s=0)
    told = estimate([replace(JOB, load=load)])
    assert told.requests == Bounds(low=10, high=10)
    assert told.minutes.low == pytest.approx((3 + 3 * 0.1 + 3 * 1.0) / 60)
    assert told.minutes.high == pytest.approx((100 + 3 * 14.5 + 3 * 1.0) / 60)


def test_a_closed_level_by_time_knows_its_time_but_not_its_requests() -> None:
    load = LoadConf(users=4, duration_s=30, settle_s=0)
    told = estimate([replace(JOB, load=load)])
    assert told.requests == Bounds(low=4 * 2, high=4 * 300)
    assert told.minutes.low == pytest.approx((3 + 30) / 60)


def test_a_closed_level_ends_with_the_lane_that_takes_longest() -> None:
    groups = [GroupConf(name="light"), GroupConf(name="heavy", output_tokens=100)]
    scenario = replace(JOB.scenario, groups=groups)
    load = LoadConf(group_users={"light": 3, "heavy": 1}, requests=13, settle_s=0)
    told = estimate([replace(JOB, scenario=scenario, load=load)])  # 10 by 3 users, 3 by 1
    assert told.requests == Bounds(low=13, high=13)
    # 4 rounds of 100 tokens at 250 ms and 100 at 20 ms
    assert told.minutes.high == pytest.approx((100 + 4 * 27) / 60)


def test_sessions_take_their_turns_one_after_another() -> None:
    scenario = replace(JOB.scenario, turns=3)
    load = LoadConf(shape=Shape.SESSIONS, users=2, sessions=6, think_s=5.0, settle_s=0)
    told = estimate([replace(JOB, scenario=scenario, load=load)])
    assert told.requests == Bounds(low=18, high=18)
    assert told.minutes.low == pytest.approx((3 + 3 * (3 * 0.1 + 2 * 5)) / 60)
    # the last turn reads 3 prompts and 2 answers: 12.5 + 0.02 * 400 = 20.5 s
    assert told.minutes.high == pytest.approx((100 + 3 * (3 * 20.5 + 2 * 5)) / 60)


def test_a_trace_lasts_its_span_and_answers_what_its_rows_say(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("time,input_tokens,output_tokens\n0,10,20\n2,200,80\n10,30,40\n")
    scenario = replace(JOB.scenario, lengths=Lengths.TRACE)
    load = LoadConf(shape=Shape.TRACE, trace=TraceConf(path=str(path)), settle_s=0)
    told = estimate([replace(JOB, scenario=scenario, load=load)])
    assert told.requests == Bounds(low=3, high=3)
    assert told.minutes.low == pytest.approx((3 + 10) / 60)
    assert told.disk_bytes.low == 110 * (235 + 4) + 3 * 100  # 20, 50 clipped, 40
    assert told.disk_bytes.high == 110 * (300 + 12) + 3 * 500


def test_a_search_takes_at_most_its_probes_and_its_confirmation() -> None:
    search = SearchConf(rate_high_rps=2, probe_max_s=60, probes_max=5, confirm_runs=2)
    load = LoadConf(shape=Shape.SEARCH, search=search, settle_s=1)
    job = replace(JOB, load=load, slo=SloConf(name="x", ttft_s=1.0))
    told = estimate([job])
    assert told.jobs == 1
    # each of the two runs that confirm tries two rates
    assert told.requests == Bounds(low=2, high=(5 + 4) * 120)
    assert told.minutes.low == pytest.approx((3 + 2 * 1.1) / 60)
    # probes of 60 s, a drain of 14.5 s, a pause of 1 s; three servers
    assert told.minutes.high == pytest.approx(((5 + 4) * 75.5 + 3 * 100) / 60)
    again = replace(search, confirm_rates=[1.0, 1.1], confirms="run", confirm_number=1)
    confirming = estimate([replace(job, load=replace(load, search=again))])
    assert confirming.minutes.high == pytest.approx((2 * 75.5 + 100) / 60)
    unknown = SearchConf(probes_max=1, confirm_runs=0)
    free = estimate([replace(job, load=replace(load, search=unknown))])
    assert free.requests.high == 4 * 850  # four times what the test needs to tell .99 from .98


def test_lengths_from_a_table_are_bounded_by_its_quantiles() -> None:
    scenario = replace(
        JOB.scenario, lengths=Lengths.EMPIRICAL, length_source="azure_conv", output_tokens=2000
    )
    told = estimate([replace(JOB, scenario=scenario)])
    tokens = told.disk_bytes.high / 60 / 312
    assert 300 < tokens < 500  # the 90 % quantile of Azure's conversations, not the 2,000 allowed


def test_jobs_add_up_and_only_priced_ones_cost() -> None:
    priced = replace(JOB, hardware=PRICED)
    one, three = estimate([priced]), estimate([priced, JOB, priced])
    assert three.jobs == 3
    assert three.requests == Bounds(low=180, high=180)
    assert three.minutes.high == pytest.approx(3 * one.minutes.high)
    assert one.money is not None
    assert three.money is not None
    assert one.money["EUR"].low == pytest.approx(one.minutes.low / 60 * 6)
    assert three.money["EUR"].high == pytest.approx(2 * one.money["EUR"].high)
    assert list(three.money) == ["EUR"]


def test_no_jobs_take_nothing() -> None:
    told = estimate([])
    assert (told.jobs, told.minutes, told.money) == (0, Bounds(low=0, high=0), None)
