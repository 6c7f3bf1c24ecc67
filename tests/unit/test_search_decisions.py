"""The search's decisions: the sequential test, the bracket, divergence, the order of verdicts."""

import math
import random
from collections.abc import Callable

import pytest

from harness.config import SloConf
from harness.search.bracket import Bracket
from harness.search.divergence import diverges
from harness.search.sequential import SequentialTest, default_low_ratio
from harness.search.verdicts import Verdicts, is_good
from harness.testing.records import make_record
from harness.types import ErrorClass


def of(high: float, low: float, error: float = 0.05) -> SequentialTest:
    return SequentialTest(high_ratio=high, low_ratio=low, error_ratio=error)


@pytest.mark.parametrize(
    ("high", "low", "expected"),
    [(0.99, 0.98, 850), (0.99, 0.97, 287), (0.95, 0.90, 159), (0.90, 0.85, 243)],
)
def test_expected_n_is_the_methods_table(high: float, low: float, expected: int) -> None:
    assert of(high, low).expected_n() == pytest.approx(expected, abs=1)


def test_without_a_miss_291_requests_show_99_against_98() -> None:
    test = of(0.99, 0.98)
    assert test.decide([True] * 290) is None
    assert test.decide([True] * 291) is True


def test_misses_decide_for_the_lower_attainment() -> None:
    good = [True] * 9 + [False]
    assert of(0.95, 0.90).decide([]) is None
    assert of(0.95, 0.90).decide(good * 2) is None
    assert of(0.95, 0.90).decide(good * 60) is False


def test_clustered_misses_count_for_less() -> None:
    spread, clustered = ([True] * 4 + [False]) * 8, [True] * 32 + [False] * 8
    test = of(0.95, 0.90)
    assert test.decide(spread) is False
    assert test.decide(clustered) is None


def test_a_perfect_attainment_fails_at_the_first_miss() -> None:
    assert of(1.0, 0.9).decide([True, False]) is False
    assert of(1.0, 0.9).decide([True] * 28) is True
    assert of(1.0, 0.9).expected_n() == 28


@pytest.mark.parametrize(("true_ratio", "verdict"), [(0.97, True), (0.86, False)])
def test_it_is_seldom_wrong(true_ratio: float, verdict: bool) -> None:
    wrong = 0
    for seed in range(200):
        rng = random.Random(f"sprt:{seed}")
        good: list[bool] = []
        while (decided := of(0.95, 0.90).decide(good)) is None:
            good.append(rng.random() < true_ratio)
        wrong += decided is not verdict
    assert wrong <= 10  # 5 % of 200


def test_what_an_attainment_is_told_from() -> None:
    assert [default_low_ratio(x) for x in (0.99, 0.95, 0.90)] == pytest.approx([0.98, 0.90, 0.85])


def search(bracket: Bracket, passes: Callable[[float], bool]) -> list[float]:
    tried: list[float] = []
    while (rate := bracket.next_rps()) is not None:
        tried.append(rate)
        bracket.take(rate, has_passed=passes(rate))
        assert len(tried) < 40
    return tried


@pytest.mark.parametrize("capacity", [0.05, 0.9, 2.0, 4.4, 5.6, 90.0])
@pytest.mark.parametrize("ratio", [1.05, 1.25])
def test_the_bracket_closes_around_the_capacity(capacity: float, ratio: float) -> None:
    bracket = Bracket(low_rps=1.0, high_rps=5.5, ratio=ratio)
    tried = search(bracket, lambda rate: rate <= capacity)
    assert bracket.low_rps <= capacity < bracket.high_rps
    assert bracket.high_rps / bracket.low_rps <= ratio * (1 + 1e-6)
    assert {bracket.low_rps, bracket.high_rps} <= set(tried)


def test_good_guesses_need_the_expected_number_of_probes() -> None:
    bracket = Bracket(low_rps=0.2, high_rps=1.1, ratio=1.25)
    expected = bracket.expected_probes()
    assert expected == 4
    assert len(search(bracket, lambda rate: rate <= 0.5)) <= expected + 1


def ramp(slope: float, seconds: int = 40) -> list[tuple[float, float]]:
    rng = random.Random("ramp")
    return [(float(t), 3.0 + slope * t + rng.random()) for t in range(seconds)]


def counts(slope: float) -> list[tuple[float, int]]:
    return [(t, int(y)) for t, y in ramp(slope)]


@pytest.mark.parametrize(
    ("now_s", "in_flight", "ttft", "limit_s", "expected"),
    [
        (40.0, 1.0, 0.5, 2.0, True),
        (29.0, 1.0, 0.5, 2.0, False),  # too early to say
        (40.0, 0.0, 0.5, 2.0, False),  # waits grow, the queue does not
        (40.0, 1.0, 0.0, 2.0, False),
        (40.0, 1.0, 0.5, 50.0, False),  # still within the SLO
    ],
)
def test_divergence_needs_all_of_its_signs(
    now_s: float, in_flight: float, ttft: float, limit_s: float, expected: bool
) -> None:
    assert diverges(now_s, counts(in_flight), ramp(ttft), ttft_limit_s=limit_s) is expected


SLO = SloConf(name="t", ttft_s=1.0, tpot_s=0.2, e2e_s=5.0)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (make_record(0, chunk_s=(0.9, 1.0), output_tokens=2), True),
        (make_record(0, chunk_s=(1.1, 1.2), output_tokens=2), False),
        (make_record(0, chunk_s=(0.9, 1.2), output_tokens=2), False),
        (make_record(0, chunk_s=(0.9,), output_tokens=1), True),
        (make_record(0, chunk_s=(), output_tokens=None), False),
        (make_record(0, chunk_s=(0.9,), error=ErrorClass.TIMEOUT), False),
        (make_record(0, chunk_s=(0.9,), censored_s=3.0), False),
    ],
)
def test_what_a_good_request_is(record: object, expected: bool) -> None:
    assert is_good(record, SLO) is expected  # type: ignore[arg-type]


def test_verdicts_come_in_due_order_and_not_while_one_before_is_open() -> None:
    verdicts = Verdicts(slo=SLO, first_index=10, settle_s=1.0)
    good = {"chunk_s": (2.5, 2.6), "output_tokens": 2}
    verdicts.take(make_record(12, due_s=2.0, **good), 0.0)
    assert verdicts.good == []
    verdicts.take(make_record(10, due_s=0.5, **good), 0.0)  # due while it filled up
    assert verdicts.good == []
    verdicts.waits(11, due_s=1.5, now_s=2.4)
    assert verdicts.good == []
    verdicts.waits(11, due_s=1.5, now_s=2.6)
    assert verdicts.good == [False, True]
    verdicts.take(make_record(11, due_s=1.5, chunk_s=(9.0,)), 0.0)  # has ended at last
    verdicts.take(make_record(13, due_s=2.2, **good), 0.0)
    assert verdicts.good == [False, True, True]
    assert math.isclose(sum(verdicts.good), 2)
