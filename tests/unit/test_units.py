import math

import pytest

from harness.types import Estimate
from harness.units import (
    byte_size,
    count,
    estimate,
    estimate_with_interval,
    interval,
    number,
    percent,
    quantity,
    ratio_change,
    seconds,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "∞"),
        (0.0, "0"),
        (0.01234, "0.0123"),
        (1.005, "1.00"),
        (9.996, "10.0"),
        (62.5, "62.5"),
        (99.96, "100"),
        (999.6, "1,000"),
        (12345.6, "12,346"),
        (-0.5, "-0.500"),
        (0.00001234, "1.23e-05"),
    ],
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_seconds_become_milliseconds_below_one() -> None:
    assert [seconds(v) for v in (None, 0.575, 0.00042, 1.5, 120.0, 0.0)] == [
        "-",
        "575 ms",
        "0.420 ms",
        "1.50 s",
        "120 s",
        "0 ms",
    ]


def test_ratios_bytes_counts_and_rates() -> None:
    assert (percent(0.992), percent(None)) == ("99.2 %", "-")
    assert (byte_size(1536), byte_size(23040), byte_size(2**40)) == (
        "1.50 KiB",
        "22.5 KiB",
        "1.00 TiB",
    )
    assert (count(2995), count(None)) == ("2,995", "-")
    assert quantity(40.0, "tokens/s") == "40.0 tokens/s"
    assert quantity(None, "tokens/s") == "-"
    assert quantity(0.5, "ratio") == "50.0 %"
    assert (ratio_change(1.3), ratio_change(0.8), ratio_change(None)) == ("+30.0 %", "-20.0 %", "-")


def test_estimates_show_interval_censoring_and_need() -> None:
    whole = Estimate(value=0.575, ci_low=0.56, ci_high=0.59, n=100)
    assert estimate_with_interval(whole, "s") == "575 ms [560 ms, 590 ms]"
    assert estimate(Estimate(value=12.0, censored=True), "s") == ">= 12.0 s"
    assert estimate_with_interval(Estimate(value=None, n=20, needed=368), "s") == "- (needs 368)"
    assert estimate_with_interval(Estimate(value=None), "s") == "-"
    assert interval(None, 1.0, "s") == ""
