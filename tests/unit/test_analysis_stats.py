import json
import math
import subprocess
import sys

import numpy as np
import pytest

from harness.analysis.intervals import (
    blocks_needed,
    bootstrap_ratio,
    early_stopping_total,
    estimate_mean,
    estimate_share,
)
from harness.analysis.stats import (
    autocorrelation_time,
    effective_n,
    estimate_percentile,
    minimum_n,
    order_ranks,
    percentile,
)


@pytest.mark.parametrize(
    ("p", "n", "ranks"),
    [
        (0.99, 500, (490, 500)),
        (0.99, 1000, (983, 997)),
        (0.99, 2000, (1971, 1989)),
        (0.99, 5000, (4936, 4964)),
        (0.95, 200, (184, 197)),
        (0.95, 1000, (936, 964)),
        (0.5, 100, (40, 61)),
        (0.99, 367, None),
        (0.9, 35, None),
    ],
)
def test_ranks_are_those_of_the_exact_binomial(
    p: float, n: int, ranks: tuple[int, int] | None
) -> None:
    assert order_ranks(n, p) == ranks


@pytest.mark.parametrize(("p", "n"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)])
def test_an_interval_exists_from_this_size_on(p: float, n: int) -> None:
    assert minimum_n(p) == n
    assert order_ranks(n, p) is not None


def test_one_sided_sizes_follow_from_the_confidence() -> None:
    one_sided_95 = [minimum_n(p, 0.9) for p in (0.9, 0.95, 0.99, 0.999)]
    assert one_sided_95 == [29, 59, 299, 2995]
    assert minimum_n(0.99, 0.98) == 459


@pytest.mark.parametrize(
    ("milliseconds", "p50", "top"),
    [([575], 575, 575), ([10, 1000], 10, 1000), (list(range(10, 201, 10)), 100, 200)],
)
def test_c40_percentiles_never_exceed_the_maximum_and_few_samples_carry_none(
    milliseconds: list[int], p50: int, top: int
) -> None:
    assert percentile(milliseconds, 0.5) == p50
    assert percentile(milliseconds, 0.99) == top
    assert estimate_percentile([milliseconds], 0.5).value == p50
    for p, needed in ((0.9, 36), (0.95, 72), (0.99, 368)):
        estimate = estimate_percentile([milliseconds], p)
        assert estimate.value is None
        assert (estimate.n, estimate.needed) == (len(milliseconds), needed)


def test_no_samples_give_nothing() -> None:
    assert percentile([], 0.5) is None
    assert estimate_percentile([], 0.99).value is None
    assert estimate_percentile([[]], 0.5).n == 0


def test_an_interval_of_independent_samples_is_that_of_its_ranks() -> None:
    # Low and high in turn: not the least autocorrelation.
    values = np.ravel(np.column_stack([np.arange(1.0, 51.0), np.arange(100.0, 50.0, -1)]))
    estimate = estimate_percentile([values], 0.5)
    assert (estimate.value, estimate.ci_low, estimate.ci_high) == (50.0, 40.0, 61.0)
    assert estimate.n_eff == 100


def test_autocorrelation_takes_effective_samples_away() -> None:
    calm = np.tile([0.0, 1.0], 200)
    runs_of_ten = np.repeat(np.random.default_rng(7).integers(0, 2, 1000), 10)
    assert autocorrelation_time(calm) == 1.0
    assert autocorrelation_time(runs_of_ten) == pytest.approx(10.0, rel=0.15)
    assert effective_n([runs_of_ten]) == pytest.approx(1000, rel=0.15)


def test_a_spread_between_runs_takes_effective_samples_away() -> None:
    few, many = np.tile([0, 0, 0, 0, 1], 20), np.tile([1, 1, 1, 1, 0], 20)
    alike = effective_n([np.tile([0, 1], 50), np.tile([0, 1], 50)])
    # Shares .2 and .8 of 100 each: variance between .09, binomial .25/200 = .00125, effect 72.
    assert effective_n([few, many]) == pytest.approx(200 / 72)
    assert alike == 200


def test_requests_cut_off_count_as_slower_than_anything() -> None:
    values, floors = [1.0] * 4 + [math.inf] * 6, [1.0] * 4 + [30.0] * 6
    estimate = estimate_percentile([values], 0.5, floors=[floors])
    assert estimate.censored
    assert estimate.value == 30.0
    assert estimate.ci_high == math.inf
    few = estimate_percentile([[1.0] * 9 + [math.inf]], 0.5, floors=[[1.0] * 9 + [30.0]])
    assert (few.value, few.censored) == (1.0, False)


def test_a_share_has_the_exact_binomial_interval() -> None:
    estimate = estimate_share([np.tile([1, 1, 1, 1, 0], 4)])
    assert estimate.value == 0.8
    assert estimate.ci_low == pytest.approx(0.5634, abs=1e-3)
    assert estimate.ci_high == pytest.approx(0.9427, abs=1e-3)
    certain = estimate_share([[1, 1, 1]])
    assert (certain.value, certain.ci_high) == (1.0, 1.0)
    assert certain.ci_low == pytest.approx(0.025 ** (1 / 3))
    assert estimate_share([]).value is None


def test_a_mean_over_runs_has_students_interval() -> None:
    estimate = estimate_mean([1.0, 2.0, 3.0])
    assert estimate.value == 2.0
    assert estimate.ci_low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)
    assert (estimate_mean([5.0]).value, estimate_mean([5.0]).ci_low) == (5.0, None)
    assert estimate_mean([]).value is None


def test_a_ratio_is_a_ratio_of_sums() -> None:
    estimate = bootstrap_ratio([100, 100], [1, 4])
    assert estimate.value == 40
    assert bootstrap_ratio([1.0], [0.0]).value is None
    steady = bootstrap_ratio([7.0] * 30, [0.5] * 30)
    assert (steady.ci_low, steady.value, steady.ci_high) == (14, 14, 14)


def test_the_bootstrap_widens_with_dependence() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(100, 10, 400)
    drift = 100 + np.repeat(rng.normal(0, 10, 20), 20)
    widths = []
    for series in (noise, drift):
        estimate = bootstrap_ratio(series, np.ones(400))
        assert estimate.ci_low is not None
        assert estimate.ci_high is not None
        widths.append(estimate.ci_high - estimate.ci_low)
    assert 1.2 < widths[0] < 2.8  # 4 standard errors of .5, less what resampling loses
    assert widths[1] > 2 * widths[0]


def test_power_gives_the_blocks_of_the_method() -> None:
    assert blocks_needed(0.03, 0.05) == 5
    assert blocks_needed(0.05, 0.05) == 10
    assert blocks_needed(5.0, 0.01) is None


def test_early_stopping_totals_are_mlperfs() -> None:
    misses = (0, 1, 2, 5, 10, 20, 50, 100)
    totals = [459, 662, 838, 1307, 2010, 3304, 6898, 12571]
    assert [early_stopping_total(t) for t in misses] == totals
    assert [early_stopping_total(t, 0.9) for t in misses] == [44, 64, 81, 127, 197, 325, 681, 1246]


def test_the_module_loads_without_scipy_and_pandas() -> None:
    code = (
        "import sys, json, harness.analysis.stats, harness.analysis.intervals;"
        "print(json.dumps([m for m in ('scipy', 'pandas', 'pyarrow') if m in sys.modules]))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(answer.stdout) == []
