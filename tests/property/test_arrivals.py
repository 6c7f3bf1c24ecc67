"""Due times: absolute, ascending, inside their limits, and truly Poisson."""

import itertools
import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.config import LevelConf, Shape
from harness.errors import ConfigError
from harness.plan.arrivals import (
    constant_due_s,
    gamma_due_s,
    level_due_s,
    poisson_due_s,
    ramp_due_s,
)
from harness.plan.gamma import gamma_gap

RATES = st.floats(0.1, 50)
DURATIONS = st.floats(0, 30)
SEEDS = st.integers()
BURSTINESS = st.floats(0.05, 20)
# Drawn once with `gamma_gap`; its distribution is tested beside.
BURSTY = [0.47213412556793793, 0.6223679062771795, 0.682119501237615]  # k = 0.5
EVEN = [0.7048651326245264, 1.279879592301151, 1.522970875431005]  # k = 4


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


@given(rate_rps=RATES, burstiness=BURSTINESS, duration_s=DURATIONS, seed=SEEDS)
def test_gamma_times_ascend_fit_and_stretch(
    rate_rps: float, burstiness: float, duration_s: float, seed: int
) -> None:
    due_s = list(gamma_due_s(rate_rps, burstiness, random.Random(seed), duration_s=duration_s))
    assert due_s == sorted(due_s)
    assert all(0 <= due < duration_s for due in due_s)
    unit = gamma_due_s(1.0, burstiness, random.Random(seed), requests=len(due_s))
    assert due_s == [due / rate_rps for due in unit]


@pytest.mark.parametrize("burstiness", [0.1, 0.5, 1.0, 4.0, 50.0])
def test_gamma_gaps_have_their_distribution(burstiness: float) -> None:
    rng = random.Random(11)
    gaps = [gamma_gap(burstiness, rng) for _ in range(20_000)]
    due_s = gamma_due_s(5.0, burstiness, random.Random(11), requests=20_000)
    assert list(due_s) == [total / 5.0 for total in itertools.accumulate(gaps)]
    assert statistics.fmean(gaps) == pytest.approx(1.0, rel=0.05)
    variation = statistics.stdev(gaps) / statistics.fmean(gaps)
    assert variation == pytest.approx(1 / math.sqrt(burstiness), rel=0.05)
    fit = stats.kstest(gaps, stats.gamma(burstiness, scale=1 / burstiness).cdf)
    assert fit.statistic < 1.63 / math.sqrt(len(gaps))  # at 1 %


def test_gamma_draws_are_the_same_in_every_version() -> None:
    bursty = list(gamma_due_s(1.0, 0.5, random.Random("1:0:arrivals:0"), requests=3))
    even = list(gamma_due_s(1.0, 4.0, random.Random("1:0:arrivals:0"), requests=3))
    assert bursty == pytest.approx(BURSTY, rel=1e-12)
    assert even == pytest.approx(EVEN, rel=1e-12)


@given(rate_rps=RATES, rate_to_rps=RATES, duration_s=st.floats(0.1, 30), seed=SEEDS)
def test_a_ramp_is_a_unit_process_in_its_cumulative_rate(
    rate_rps: float, rate_to_rps: float, duration_s: float, seed: int
) -> None:
    rng = random.Random(seed)
    due_s = list(ramp_due_s(rate_rps, rate_to_rps, rng, duration_s=duration_s))
    assert due_s == sorted(due_s)
    assert all(0 <= due < duration_s for due in due_s)
    units = list(poisson_due_s(1.0, random.Random(seed), requests=len(due_s) + 1))
    slope = (rate_to_rps - rate_rps) / duration_s
    for due, unit in zip(due_s, units, strict=False):
        assert rate_rps * due + slope * due * due / 2 == pytest.approx(unit, rel=1e-6)
    total = (rate_rps + rate_to_rps) * duration_s / 2
    assert units[-1] >= total * (1 - 1e-9)  # the one after the last is beyond the ramp


def test_a_ramp_puts_the_arrivals_where_the_rate_is() -> None:
    due_s = list(ramp_due_s(1.0, 9.0, random.Random(3), duration_s=1000.0))
    assert len(due_s) == pytest.approx(5000, abs=4 * math.sqrt(5000))
    first_half = sum(due < 500 for due in due_s)  # 1 to 5 a second: 1500 of 5000
    assert first_half == pytest.approx(1500, abs=4 * math.sqrt(1500))
    down = list(ramp_due_s(9.0, 1.0, random.Random(3), duration_s=1000.0))
    assert sum(due < 500 for due in down) == pytest.approx(3500, abs=4 * math.sqrt(3500))
    assert len(list(ramp_due_s(5, 5.5, random.Random(3), duration_s=1000, requests=7))) == 7


def test_a_level_draws_from_its_own_stream() -> None:
    level = LevelConf(shape=Shape.POISSON, rate_rps=2, requests=20)
    first = list(level_due_s(level, "1:0"))
    assert first == list(level_due_s(level, "1:0"))
    assert first == list(poisson_due_s(2, random.Random("1:0:arrivals:0"), requests=20))
    assert first != list(level_due_s(level, "1:0", again=1))
    assert first != list(level_due_s(level, "1:1"))


@pytest.mark.parametrize(
    "change",
    [
        {"shape": Shape.POISSON},
        {"shape": Shape.GAMMA, "burstiness": 0.4},
        {"shape": Shape.SESSIONS, "sessions": 20},
    ],
)
def test_levels_at_different_rates_play_one_pattern(change: dict[str, Any]) -> None:
    slow = level_due_s(LevelConf(rate_rps=2, requests=20, **change), "1:0")
    fast = level_due_s(LevelConf(rate_rps=8, requests=20, **change), "1:0")
    assert len(slow) == 20
    assert [4 * due for due in fast] == pytest.approx(list(slow))


def test_each_shape_has_its_own_times() -> None:
    ramp = LevelConf(shape=Shape.RAMP, rate_rps=1, rate_to_rps=20, duration_s=5)
    assert list(level_due_s(ramp, "1:0")) == list(
        ramp_due_s(1, 20, random.Random("1:0:arrivals:0"), duration_s=5)
    )
    constant = LevelConf(shape=Shape.CONSTANT, rate_rps=200, requests=2000)
    due_s = level_due_s(constant, "1:0")
    assert [round(1000 * due) for due in due_s[:3]] == [0, 5, 10]
    assert due_s[-1] == 9.995


def test_many_arrivals_are_numbers_in_a_row() -> None:
    level = LevelConf(shape=Shape.GAMMA, rate_rps=500, burstiness=0.5, requests=200_000)
    due_s = level_due_s(level, "1:0")
    assert (len(due_s), due_s.itemsize) == (200_000, 8)
    assert due_s[-1] == pytest.approx(400, rel=0.02)


def test_what_has_no_schedule_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"load\.requests=100"):
        constant_due_s(1.0)
    with pytest.raises(ConfigError, match="no due times"):
        level_due_s(LevelConf(users=1, requests=1), "1:0")
    with pytest.raises(ConfigError, match=r"rate_to_rps=20"):
        level_due_s(LevelConf(shape=Shape.RAMP, rate_rps=1, duration_s=5), "1:0")
