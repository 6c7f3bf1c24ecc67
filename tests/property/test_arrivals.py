"""Due times: absolute, ascending, inside their limits, and truly Poisson."""

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import LevelConf, Shape
from harness.errors import ConfigError
from harness.plan.arrivals import constant_due_s, level_due_s, poisson_due_s

RATES = st.floats(0.1, 50)
DURATIONS = st.floats(0, 30)
SEEDS = st.integers()


@given(rate_rps=RATES, duration_s=DURATIONS, seed=SEEDS)
def test_poisson_times_ascend_and_fit_the_window(
    rate_rps: float, duration_s: float, seed: int
) -> None:
    due_s = list(poisson_due_s(rate_rps, random.Random(seed), duration_s=duration_s))
    assert due_s == sorted(due_s)
    assert all(0 <= due < duration_s for due in due_s)


@given(rate_rps=RATES, requests=st.integers(0, 200), seed=SEEDS)
def test_requests_limit_the_count_exactly(rate_rps: float, requests: int, seed: int) -> None:
    due_s = list(poisson_due_s(rate_rps, random.Random(seed), requests=requests))
    assert len(due_s) == requests
    assert len(list(constant_due_s(rate_rps, requests=requests))) == requests


@given(rate_rps=RATES, seed=SEEDS, cut=st.integers(0, 50))
def test_a_shorter_schedule_is_the_beginning_of_a_longer_one(
    rate_rps: float, seed: int, cut: int
) -> None:
    longer = list(poisson_due_s(rate_rps, random.Random(seed), requests=50))
    shorter = list(poisson_due_s(rate_rps, random.Random(seed), requests=cut))
    assert shorter == longer[:cut]


@given(seed=SEEDS, rate_rps=RATES)
def test_another_rate_stretches_the_same_pattern(seed: int, rate_rps: float) -> None:
    unit = list(poisson_due_s(1.0, random.Random(seed), requests=30))
    scaled = list(poisson_due_s(rate_rps, random.Random(seed), requests=30))
    assert scaled == [due / rate_rps for due in unit]


@given(rate_rps=RATES, duration_s=DURATIONS)
def test_constant_times_are_exact_and_do_not_drift(rate_rps: float, duration_s: float) -> None:
    due_s = list(constant_due_s(rate_rps, duration_s=duration_s))
    assert due_s == [number / rate_rps for number in range(len(due_s))]
    assert all(due < duration_s for due in due_s)
    assert len(due_s) / rate_rps >= duration_s


def test_constant_200_a_second_ends_at_9_995_s() -> None:
    due_s = list(constant_due_s(200, requests=2000))
    assert due_s[0] == 0.0
    assert due_s[1] == 0.005
    assert due_s[-1] == 9.995


def test_the_first_limit_met_ends_the_schedule() -> None:
    assert len(list(constant_due_s(10, requests=5, duration_s=100))) == 5
    assert len(list(constant_due_s(10, requests=500, duration_s=1))) == 10


def test_poisson_gaps_are_exponential_and_counts_vary() -> None:
    rng = random.Random(7)
    due_s = list(poisson_due_s(5.0, rng, requests=20_000))
    gaps = [due_s[0], *(b - a for a, b in itertools.pairwise(due_s))]
    assert statistics.fmean(gaps) == pytest.approx(0.2, rel=0.03)
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(1.0, abs=0.03)
    ordered = sorted(gaps)
    distance = max(
        abs((k + 1) / len(gaps) - (1 - math.exp(-5.0 * gap))) for k, gap in enumerate(ordered)
    )
    assert distance < 1.63 / math.sqrt(len(gaps))  # Kolmogorov-Smirnov at 1 %
    counts = [len(list(poisson_due_s(5.0, rng, duration_s=10))) for _ in range(400)]
    assert statistics.variance(counts) == pytest.approx(50, rel=0.25)  # rescaling would give 0


def test_a_level_draws_from_its_own_stream() -> None:
    level = LevelConf(shape=Shape.POISSON, rate_rps=2, requests=20)
    first = list(level_due_s(level, "1:0", 0))
    assert first == list(level_due_s(level, "1:0", 0))
    assert first == list(poisson_due_s(2, random.Random("1:0:arrivals:0"), requests=20))
    assert first != list(level_due_s(level, "1:0", 1))
    assert first != list(level_due_s(level, "1:1", 0))


def test_what_has_no_schedule_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"load\.requests=100"):
        constant_due_s(1.0)
    with pytest.raises(ConfigError, match="closed load"):
        level_due_s(LevelConf(users=1, requests=1), "1:0", 0)
