"""What counts when nobody waits: tokens an hour, and what they cost."""

from collections.abc import Sequence
from dataclasses import replace

from harness.analysis.cost import cost_estimate
from harness.analysis.intervals import estimate_mean
from harness.analysis.rates import rate_value
from harness.analysis.scenario_measures.runs import PlayedRun, levels_of
from harness.analysis.scenario_measures.table import Figure, Found
from harness.types import Estimate
from harness.units import estimate

_HOUR_S = 3600.0


def tokens_per_hour_cost(runs: Sequence[PlayedRun]) -> Found:
    """Output tokens an hour at each level, and the cost of a million where a price is known."""
    figures: list[Figure] = []
    best: tuple[float, str] | None = None
    for level, views in levels_of(runs).items():
        rates = [rate_value(view, "output_tokens_per_s") for view in views]
        rate = estimate_mean([value for value in rates if value is not None])
        hourly = _times(rate, _HOUR_S)
        figures.append(Figure(label="output tokens an hour", unit="", value=hourly, level=level))
        prices = {view.price_per_hour for view in views}
        cost = cost_estimate(prices.pop() if len(prices) == 1 else None, rate)
        if cost.value is not None:
            unit = "per 1M output tokens"
            figures.append(Figure(label="cost", unit=unit, value=cost, level=level))
        if hourly.value is not None and (best is None or hourly.value > best[0]):
            price = "" if cost.value is None else f", at {estimate(cost, '')} a million"
            best = hourly.value, f"{estimate(hourly, 'output tokens')} an hour at {level}{price}"
    return figures, best[1] if best else "nothing was measured"


def _times(figure: Estimate, factor: float) -> Estimate:
    return replace(
        figure,
        value=None if figure.value is None else figure.value * factor,
        ci_low=None if figure.ci_low is None else figure.ci_low * factor,
        ci_high=None if figure.ci_high is None else figure.ci_high * factor,
    )
