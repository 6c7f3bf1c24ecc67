import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.analysis.intervals import estimate_share
from harness.analysis.stats import (
    effective_n,
    estimate_percentile,
    minimum_n,
    order_ranks,
    percentile,
)

samples = st.lists(st.floats(0, 1e6), min_size=1, max_size=400)


@given(values=samples)
def test_percentiles_are_ordered_samples_below_the_maximum(values: list[float]) -> None:
    found = [percentile(values, p) for p in (0.5, 0.9, 0.99, 1.0)]
    assert found == sorted(found, key=lambda value: value or 0.0)
    assert all(value in values for value in found)
    assert found[-1] == max(values)


@given(values=samples, p=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_at_least_p_of_the_samples_lie_at_or_below(values: list[float], p: float) -> None:
    value = percentile(values, p)
    assert value is not None
    share = np.mean(np.asarray(values) <= value)
    assert share >= p - 1e-9


@settings(deadline=None)  # the first call imports scipy
@given(n=st.integers(1, 20_000), p=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_ranks_enclose_the_percentile(n: int, p: float) -> None:
    ranks = order_ranks(n, p)
    if n < minimum_n(p):
        assert ranks is None
        return
    assert ranks is not None
    low, high = ranks
    assert 1 <= low <= math.ceil(n * p) <= high <= n


@given(runs=st.lists(st.lists(st.booleans(), min_size=1, max_size=60), min_size=1, max_size=5))
def test_effective_samples_are_between_none_and_all(runs: list[list[bool]]) -> None:
    n_eff = effective_n(runs)
    assert 0 < n_eff <= sum(len(run) for run in runs)


@settings(deadline=None)
@given(values=samples, p=st.sampled_from([0.5, 0.9, 0.99]), cut=st.integers(0, 5))
def test_an_estimate_lies_in_its_interval(values: list[float], p: float, cut: int) -> None:
    cut_off, ages = [*values, *[math.inf] * cut], [*values, *[2e6] * cut]
    estimate = estimate_percentile([cut_off], p, floors=[ages])
    if estimate.value is None or estimate.ci_low is None or estimate.ci_high is None:
        assert p > 0.5 or estimate.n_eff is None or estimate.n_eff < 6
        return
    assert estimate.ci_low <= estimate.value <= estimate.ci_high
    assert estimate.censored is False or estimate.ci_high == math.inf


@settings(max_examples=30, deadline=None)
@given(hits=st.integers(0, 50), misses=st.integers(0, 50))
def test_a_share_lies_in_its_interval(hits: int, misses: int) -> None:
    if hits + misses == 0:
        return
    estimate = estimate_share([[1] * hits + [0] * misses])
    assert estimate.value is not None
    assert estimate.ci_low is not None
    assert estimate.ci_high is not None
    assert 0 <= estimate.ci_low <= estimate.value <= estimate.ci_high <= 1


@pytest.mark.parametrize(("n", "rho", "at_least"), [(500, 0.0, 0.93), (2000, 0.9, 0.85)])
def test_a_p99_interval_covers_the_truth(n: int, rho: float, at_least: float) -> None:
    """Lognormal samples, 200 times; an interval that takes them as independent covers .60."""
    rng = np.random.default_rng(20)
    truth = math.exp(0.6 * 2.3263478740408408)
    covered = 0
    for _ in range(200):
        noise = rng.standard_normal(n) * math.sqrt(1 - rho**2)
        noise[0] /= math.sqrt(1 - rho**2)
        for i in range(1, n):
            noise[i] += rho * noise[i - 1]
        estimate = estimate_percentile([np.exp(0.6 * noise)], 0.99)
        low, high = estimate.ci_low, estimate.ci_high
        covered += low is None or high is None or low <= truth <= high
    assert covered / 200 >= at_least
