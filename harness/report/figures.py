"""The figures of the page but for the timeline: throughput against latency, and distributions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from harness.analysis.frame import Floats
from harness.analysis.model import Cell, Summary, Workload
from harness.config import SloConf
from harness.report.names import candidates_of, workloads_of
from harness.report.palette import LIMIT, MUTED, Style, style_of
from harness.report.samples import Samples, curve
from harness.report.svg import drawing, new_figure, to_svg
from harness.store import StoredRun
from harness.types import Estimate

_LOG_SPAN = 8.0  # values that span more than this (largest over least) get a log axis
_NEAR_PX = 14.0  # points nearer than this share one text
_FAR = 2.0  # a limit beyond this times the largest sample is left out: it would squeeze the curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One drawn figure: its SVG and the line below it."""

    svg: str
    caption: str


def styles_of(summary: Summary) -> dict[str, Style]:
    """A look for each candidate, by its key; the same in every figure."""
    return {c.key: style_of(i) for i, c in enumerate(candidates_of(summary))}


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
        _limit(axes, limit_s, horizontal=True)
        _scale(axes.yaxis, np.array([_value(c, metric) * 1e3 for c in cells]))
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


def _limit(axes: Axes, limit_s: float | None, *, horizontal: bool = False) -> None:
    if limit_s is None:
        return
    draw = axes.axhline if horizontal else axes.axvline
    draw(limit_s * 1e3, color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)))


def distribution_panels(
    summary: Summary, runs: Mapping[str, StoredRun], slo: SloConf | None
) -> tuple[list[Panel], list[Panel]]:
    """Empirical CDFs of TTFT and of chunk gaps, one panel a workload, one curve a candidate."""
    ttft: list[Panel] = []
    gaps: list[Panel] = []
    samples = Samples(runs)
    styles = styles_of(summary)
    for number, workload in enumerate(workloads_of(summary)):
        cells = [c for c in summary.cells if c.workload.key == workload.key]
        named = (
            (ttft, "TTFT", "ttft_s", slo.ttft_s if slo else None),
            (gaps, "chunk gap", "gaps_s", None),
        )
        for panels, what, column, limit_s in named:
            values = {c.candidate.key: samples.pooled(c, column) for c in cells}
            if any(v.size for v in values.values()):
                key = f"{what.replace(' ', '-').lower()}-{number}"
                panels.append(_distribution(key, what, workload, values, limit_s, styles))
    return ttft, gaps


def _distribution(
    key: str,
    what: str,
    workload: Workload,
    samples: Mapping[str, Floats],
    limit_s: float | None,
    styles: Mapping[str, Style],
) -> Panel:
    with drawing():
        figure, (axes,) = new_figure(height_in=2.7)
        axes.set_title(workload.label)
        axes.set_xlabel(f"{what} (ms)")
        axes.set_ylabel("share at or below")
        for candidate_key, values in samples.items():
            x, share = curve(values)
            style = styles[candidate_key]
            axes.step(x * 1e3, share, where="post", color=style.color, linestyle=style.linestyle)
        for percentile in (0.5, 0.9, 0.99):
            axes.axhline(percentile, color=MUTED, linewidth=0.6, linestyle=(0, (1, 3)))
        axes.set_yticks([0, 0.25, 0.5, 0.75, 0.9, 0.99], ["0", ".25", ".5", ".75", ".9", ".99"])
        axes.set_ylim(0, 1.02)
        seen_ms = np.concatenate([v[np.isfinite(v)] for v in samples.values()]) * 1e3
        if limit_s is not None and seen_ms.size and limit_s * 1e3 < _FAR * seen_ms.max():
            _limit(axes, limit_s)
        _scale(axes.xaxis, seen_ms)
        title = f"Distribution of {what}, {workload.label}"
        svg = to_svg(figure, key=key, title=title)
    counts = " and ".join(f"{v.size:,}" for v in samples.values())
    caption = f"Share of {counts} samples with a {what} (ms) at or below x; further left is better."
    return Panel(svg=svg, caption=caption)


def _scale(axis: Axis, values: Floats) -> None:
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
