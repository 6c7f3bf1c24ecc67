"""What every figure of the page shares: a panel with its caption, looks, limits and scales."""

from dataclasses import dataclass

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from harness.analysis.frame import Floats
from harness.analysis.model import Summary
from harness.report.names import candidates_of
from harness.report.palette import LIMIT, Style, style_of

_LOG_SPAN = 8.0  # values that span more than this (largest over least) get a log axis
_FAR = 2.0  # a limit beyond this times the largest value is left out: it would squeeze the data


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One drawn figure: its SVG and the line below it."""

    svg: str
    caption: str


def styles_of(summary: Summary) -> dict[str, Style]:
    """A look for each candidate, by its key; the same in every figure."""
    return {c.key: style_of(i) for i, c in enumerate(candidates_of(summary))}


def draw_limit(axis: Axis, limit_s: float | None, values_ms: Floats) -> None:
    """A dashed line at the SLO's limit, across the axis that has the latency in ms."""
    if limit_s is None or not values_ms.size or limit_s * 1e3 > _FAR * values_ms.max():
        return
    axes = axis.axes
    draw = axes.axhline if axis is axes.yaxis else axes.axvline
    draw(limit_s * 1e3, color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)))


def scale_axis(axis: Axis, values: Floats) -> None:
    """A log axis with plain numbers where the values span much, else one from 0 or near it."""
    axes = axis.axes
    is_y = axis is axes.yaxis
    positive = values[values > 0]
    span = positive.max() / positive.min() if positive.size else 1.0
    if span < _LOG_SPAN:
        if is_y:
            axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
        return
    (axes.set_yscale if is_y else axes.set_xscale)("log")
    subs = (1.0, 2.0, 5.0) if span < 1e3 else (1.0,)  # noqa: PLR2004 (three decades)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if is_y:
        low, high = axes.get_ylim()
        axes.set_ylim(low / 1.3, high * 1.3)
