"""How values are written for people; nothing else formats a figure.

Inside, seconds are seconds and ratios are 0..1; here they become `575 ms` and `99.2 %`.
Missing is written `-`, never 0. This module imports only `harness.types`.
"""

import math

from harness.types import Estimate

MISSING = "-"
_BYTE_STEPS = ("B", "KiB", "MiB", "GiB", "TiB")


def number(value: float | None) -> str:
    """Three significant digits, whole numbers from 100 on with thousands separators."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    rounded = value if abs(value) >= 100 else float(f"{value:.3g}")  # noqa: PLR2004 three digits
    size = math.floor(math.log10(abs(rounded)))
    if size >= -4:  # noqa: PLR2004 below, an exponent is shorter
        return f"{rounded:,.{max(0, 2 - size)}f}"
    return f"{rounded:.3g}"


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    return MISSING if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """Milliseconds below one second, else seconds."""
    if value is None or not math.isfinite(value):
        return number(value)
    if abs(value) < 1:
        return f"{number(value * 1e3)} ms"
    return f"{number(value)} s"


def percent(ratio: float | None) -> str:
    """A ratio 0..1 as a percentage."""
    if ratio is None or not math.isfinite(ratio):
        return number(ratio)
    return f"{number(ratio * 100)} %"


def byte_size(value: float | None) -> str:
    """Bytes in powers of 1024."""
    if value is None or not math.isfinite(value):
        return number(value)
    step = 0
    while abs(value) >= 1024 and step < len(_BYTE_STEPS) - 1:  # noqa: PLR2004 the step of KiB
        value /= 1024
        step += 1
    return f"{number(value)} {_BYTE_STEPS[step]}"


def quantity(value: float | None, unit: str) -> str:
    """A value in the unit of `harness.analysis.metrics.METRICS`.

    `s`, `ratio` and `bytes` have forms of their own, also with `/h` behind them; any other unit
    is put behind the number, and no unit gives the number alone.
    """
    if unit.endswith("/h") and value is not None:
        return f"{quantity(value, unit.removesuffix('/h'))} an hour"
    special = {"s": seconds, "ratio": percent, "bytes": byte_size}.get(unit)
    if special is not None:
        return special(value)
    text = number(value)
    return text if text == MISSING or not unit else f"{text} {unit}"


def interval(low: float | None, high: float | None, unit: str) -> str:
    """`[560 ms, 590 ms]`, or nothing where there is no interval."""
    if low is None or high is None:
        return ""
    return f"[{quantity(low, unit)}, {quantity(high, unit)}]"


def estimate(figure: Estimate, unit: str) -> str:
    """The value alone; `>= 12.0 s` where requests that were cut off decide it."""
    text = quantity(figure.value, unit)
    return f">= {text}" if figure.censored and text != MISSING else text


def estimate_with_interval(figure: Estimate, unit: str) -> str:
    """`575 ms [560 ms, 590 ms]`, or `- (needs 368)` where the sample is too small."""
    text = estimate(figure, unit)
    if figure.value is None and figure.reason:
        return f"{text} ({figure.reason})"
    if figure.value is None:
        return f"{text} (needs {count(figure.needed)})" if figure.needed else text
    return f"{text} {interval(figure.ci_low, figure.ci_high, unit)}".rstrip()


def ratio_change(ratio: float | None) -> str:
    """A over B as a signed change: 1.3 is `+30.0 %`."""
    if ratio is None or not math.isfinite(ratio):
        return number(ratio)
    change = ratio - 1
    return f"{'+' if change > 0 else ''}{percent(change)}"
