"""Every metric of a cell over its runs: the estimate with its interval, and each run's figure."""

from collections.abc import Sequence
from dataclasses import replace

from harness.analysis.cost import cost_estimate
from harness.analysis.frame import Floats
from harness.analysis.intervals import bootstrap_ratio, estimate_mean, estimate_share
from harness.analysis.measure import plain_value, share_indicator
from harness.analysis.metrics import METRICS, Kind, Metric
from harness.analysis.rates import rate_series, rate_value
from harness.analysis.stats import estimate_percentile
from harness.analysis.views import LevelView, latency_sample
from harness.types import Estimate

Figure = tuple[Estimate, tuple[float | None, ...]]
RAMP = "ramp"
NO_PERCENTILES = "a ramp is exploration: no one load"
_RATE = "output_tokens_per_s"
# figures that say something of one load, and nothing across many
_OF_A_LOAD = {m.name for m in METRICS if m.kind is Kind.PERCENTILE and m.column != "lag_s"} | {
    "attainment_ratio"
}


def cell_figures(views: Sequence[LevelView]) -> dict[str, Figure]:
    """Metric name to (estimate over all runs, figure of each run), for every metric.

    `views`: the same level in each run. Percentiles are of all requests together with the
    spread between runs in their effective sample size; rates and means are means over runs with
    Student's interval, or the block bootstrap's for one run.
    """
    samples: dict[str, list[tuple[Floats, Floats]]] = {}
    figures: dict[str, Figure] = {}
    is_ramp = any(view.level.shape == RAMP for view in views)
    for metric in METRICS:
        if is_ramp and metric.name in _OF_A_LOAD:
            figures[metric.name] = _no_one_load(views)
        elif metric.kind is Kind.PERCENTILE:
            if metric.column not in samples:
                samples[metric.column] = [latency_sample(v, metric.column) for v in views]
            figures[metric.name] = _percentile(metric, samples[metric.column])
        elif metric.kind is Kind.RATE:
            figures[metric.name] = _rate(metric, views)
        elif metric.kind is Kind.SHARE:
            figures[metric.name] = _share(metric, views)
        else:
            per_run = tuple(plain_value(view, metric.name) for view in views)
            figures[metric.name] = (_told(_mean(per_run), metric, views), per_run)
    cost = figures["cost_per_mtok"]
    figures["cost_per_mtok"] = (cost_estimate(_price(views), figures[_RATE][0]), cost[1])
    return figures


def _told(found: Estimate, metric: Metric, views: Sequence[LevelView]) -> Estimate:
    """The figure, or why there is none where anything was measured at all."""
    is_absent = found.value is None and not all(view.is_empty for view in views)
    return replace(found, reason=metric.absent) if is_absent else found


def _no_one_load(views: Sequence[LevelView]) -> Figure:
    n = sum(len(view.measured) for view in views)
    return Estimate(value=None, n=n, reason=NO_PERCENTILES), (None,) * len(views)


def _percentile(metric: Metric, runs: Sequence[tuple[Floats, Floats]]) -> Figure:
    assert metric.p is not None
    each = [estimate_percentile([v], metric.p, floors=[f]) for v, f in runs]
    per_run = tuple(None if one.censored else one.value for one in each)
    if len(runs) == 1:
        return each[0], per_run
    values, floors = [v for v, _ in runs], [f for _, f in runs]
    return estimate_percentile(values, metric.p, floors=floors), per_run


def _rate(metric: Metric, views: Sequence[LevelView]) -> Figure:
    per_run = tuple(rate_value(view, metric.name) for view in views)
    known = [view for view, value in zip(views, per_run, strict=True) if value is not None]
    if len(known) != 1:
        return _mean(per_run), per_run
    series = rate_series(known[0], metric.name)
    assert series is not None
    piece_s = known[0].window_s / series.size
    return bootstrap_ratio(series, [piece_s] * series.size), per_run


def _share(metric: Metric, views: Sequence[LevelView]) -> Figure:
    runs = [share_indicator(view, metric.name) for view in views]
    per_run = tuple(float(run.mean()) if run is not None and run.size else None for run in runs)
    return estimate_share([run for run in runs if run is not None]), per_run


def _mean(per_run: Sequence[float | None]) -> Estimate:
    return estimate_mean([value for value in per_run if value is not None])


def _price(views: Sequence[LevelView]) -> float | None:
    prices = {view.price_per_hour for view in views}
    return prices.pop() if len(prices) == 1 else None
