"""MSER-5 on series whose answer is known."""

import numpy as np
import pytest

from harness.analysis.mser import mser5, settled


def noise(n: int, seed: int = 1, spread: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, spread, n)


def test_a_step_is_cut_where_it_is() -> None:
    series = np.r_[np.full(40, 10.0), np.ones(160)] + noise(200)
    found = settled(series)
    assert found is not None
    assert found.is_steady
    assert found.cut in (40, 45)  # noise may make one batch more worth its while
    assert found.before == pytest.approx(10, abs=1.1)
    assert found.after == pytest.approx(1, abs=0.1)


def test_a_step_without_any_noise_is_cut_there_too() -> None:
    assert mser5(np.r_[np.full(40, 10.0), np.ones(160)]) == 40


def test_the_statistic_by_hand() -> None:
    """Ten batches 9, 1, 1, 2, 1, 2, 1, 2, 1, 2: cutting one is best of the six cuts allowed."""
    means = np.array([9, 1, 1, 2, 1, 2, 1, 2, 1, 2], dtype=float)
    by_hand = [((left - left.mean()) ** 2).sum() / left.size**2 for left in _tails(means)]
    assert int(np.argmin(by_hand)) == 1
    assert mser5(np.repeat(means, 5)) == 5


def _tails(means: np.ndarray) -> list[np.ndarray]:
    return [means[d:] for d in range(means.size - 4)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [50, 200, 1000])
def test_white_noise_is_steady_and_nothing_is_cut(n: int, seed: int) -> None:
    found = settled(1 + noise(n, seed, 0.3))
    assert found is not None
    assert (found.cut, found.is_steady) == (0, True)


def test_a_trend_never_settles() -> None:
    series = np.arange(200.0) + noise(200, spread=5)
    cut = mser5(series)
    assert cut is not None
    assert cut > 100
    found = settled(series)
    assert found is not None
    assert not found.is_steady


def test_a_late_step_never_settles() -> None:
    found = settled(np.r_[np.ones(140), np.full(60, 2.0)] + noise(200))
    assert found is not None
    assert (found.cut, found.is_steady) == (140, False)


def test_a_change_below_a_tenth_does_not_matter() -> None:
    found = settled(np.r_[np.full(40, 1.05), np.ones(160)])
    assert found is not None
    assert (found.cut, found.is_steady) == (0, True)


def test_constants_with_rounding_are_steady() -> None:
    found = settled(np.full(200, 8.0) + noise(200, spread=1e-14))
    assert found is not None
    assert found.cut == 0


@pytest.mark.parametrize("n", [0, 1, 49])
def test_of_a_short_series_nothing_is_said(n: int) -> None:
    assert mser5(np.ones(n)) is None
    assert settled(np.ones(n)) is None
