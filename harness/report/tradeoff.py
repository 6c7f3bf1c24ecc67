"""The figure of latency against throughput: what a candidate gives against what its users feel."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from harness.analysis.frame import Floats
from harness.analysis.model import Cell, Summary
from harness.config import SloConf
from harness.report.palette import MUTED, Style
from harness.report.panel import Panel, draw_limit, scale_axis, styles_of
from harness.report.svg import drawing, new_figure, to_svg
from harness.types import Estimate

_NEAR_PX = 14.0  # points nearer than this share one text


def tradeoff_panels(summary: Summary, slo: SloConf | None) -> list[Panel]:
    """Latency against output throughput, one line a candidate, one point a level of load."""
    limits = (slo.ttft_s, slo.tpot_s) if slo else (None, None)
    chosen = (
        ("ttft_p50_s", "TTFT, P50", limits[0]),
        ("tpot_p50_s", "TPOT, P50", limits[1]),
    )
    panels = []
    for metric, label, limit_s in chosen:
        cells = [c for c in summary.cells if _has(c, metric) and _has(c, "output_tokens_per_s")]
        if cells:
            panels.append(_tradeoff(cells, metric, label, limit_s, styles_of(summary)))
    return panels


def _lines(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells of one candidate and scenario together, in order of load."""
    lines: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        lines.setdefault((cell.candidate.key, cell.workload.scenario), []).append(cell)
    return list(lines.values())


def _has(cell: Cell, metric: str) -> bool:
    value = _estimate(cell, metric).value
    return value is not None and math.isfinite(value)


def _value(cell: Cell, metric: str) -> float:
    return _estimate(cell, metric).value or 0.0


def _estimate(cell: Cell, metric: str) -> Estimate:
    return cell.metrics.get(metric, Estimate(value=None))


def _tradeoff(
    cells: Sequence[Cell],
    metric: str,
    label: str,
    limit_s: float | None,
    styles: Mapping[str, Style],
) -> Panel:
    title = f"{label} against output throughput"
    with drawing():
        figure, (axes,) = new_figure()
        axes.set_title(title)
        axes.set_xlabel("output throughput (tokens/s)")
        axes.set_ylabel(f"{label} (ms)")
        lines = _lines(cells)
        for line in lines:
            _line(axes, line, metric, styles[line[0].candidate.key])
        values_ms = np.array([_value(c, metric) * 1e3 for c in cells])
        draw_limit(axes.yaxis, limit_s, values_ms)
        scale_axis(axes.yaxis, values_ms)
        axes.set_xlim(0, axes.get_xlim()[1] * 1.14)
        for number, line in enumerate(lines):
            _annotate(axes, line, metric, above=number % 2 == 0)
        svg = to_svg(figure, key=f"tradeoff-{metric.replace('_', '-')}", title=title)
    caption = (
        f"Median {label.split(',', maxsplit=1)[0]} in ms over output tokens per second; one point "
        "a load level, bars are 95 % intervals. Further right and lower is better."
    )
    return Panel(svg=svg, caption=caption)


def _line(axes: Axes, cells: Sequence[Cell], metric: str, style: Style) -> None:
    x = [_estimate(c, "output_tokens_per_s") for c in cells]
    y = [_estimate(c, metric) for c in cells]
    axes.errorbar(
        [e.value or 0.0 for e in x],
        [(e.value or 0.0) * 1e3 for e in y],
        xerr=_bars(x, 1.0),
        yerr=_bars(y, 1e3),
        color=style.color,
        marker=style.marker,
        linestyle=style.linestyle,
        elinewidth=1,
        capsize=2,
    )


def _annotate(axes: Axes, cells: Sequence[Cell], metric: str, *, above: bool) -> None:
    """Write the levels beside their points; points that lie together share one text."""
    to_display = axes.transData.transform
    placed: list[tuple[Floats, list[str], tuple[float, float]]] = []
    for cell in cells:
        at = (_value(cell, "output_tokens_per_s"), _value(cell, metric) * 1e3)
        spot = np.asarray(to_display(at))
        near = next((p for p in placed if np.abs(p[0] - spot).max() < _NEAR_PX), None)
        if near is None:
            placed.append((spot, [cell.workload.level], at))
        else:
            near[1].append(cell.workload.level)
    for _, levels, at in placed:
        axes.annotate(
            ", ".join(levels),
            at,
            xytext=(5, 7 if above else -13),
            textcoords="offset points",
            fontsize=8,
            color=MUTED,
        )


def _bars(estimates: Sequence[Estimate], scale: float) -> list[list[float]]:
    low, high = [], []
    for e in estimates:
        value = e.value or 0.0
        low.append(max(0.0, value - _finite_or(e.ci_low, value)) * scale)
        high.append(max(0.0, _finite_or(e.ci_high, value) - value) * scale)
    return [low, high]


def _finite_or(value: float | None, otherwise: float) -> float:
    return value if value is not None and math.isfinite(value) else otherwise
