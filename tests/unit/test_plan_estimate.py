"""What a sweep will take: exact sums on small jobs."""

from dataclasses import replace

import pytest

from harness.config import (
    EngineConf,
    HardwareConf,
    LoadConf,
    PriceConf,
    RunConf,
    ScenarioConf,
    Shape,
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
