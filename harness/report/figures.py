"""The figures of the page but for the timeline: throughput against latency, and distributions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from harness.analysis.model import Cell, Summary, Workload
from harness.config import SloConf
from harness.report.names import candidates_of, workloads_of
from harness.report.palette import LIMIT, MUTED, Style, style_of
from harness.report.samples import Array, curve, pooled
from harness.report.svg import drawing, new_figure, to_svg
from harness.store import StoredRun
from harness.types import Estimate

_LOG_SPAN = 8.0  # a wider axis than this (last over first) is drawn on a log scale


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


def _has(cell: Cell, metric: str) -> bool:
    value = _estimate(cell, metric).value
    return value is not None and math.isfinite(value)


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
        for key, style in styles.items():
            mine = [c for c in cells if c.candidate.key == key]
            for scenario in dict.fromkeys(c.workload.scenario for c in mine):
                points = [c for c in mine if c.workload.scenario == scenario]
                _line(axes, points, metric, style)
        _limit(axes, limit_s, horizontal=True)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.margins(x=0.12)
        svg = to_svg(figure, key=f"tradeoff-{metric.replace('_', '-')}", title=title)
    caption = (
        f"Median {label.split(',', maxsplit=1)[0]} in ms over output tokens per second; one point "
        "a load level, bars are 95 % intervals. Further right and lower is better."
    )
    return Panel(svg=svg, caption=caption)


def _line(axes: Axes, cells: Sequence[Cell], metric: str, style: Style) -> None:
    cells = sorted(cells, key=lambda c: _estimate(c, "output_tokens_per_s").value or 0.0)
    x = [_estimate(c, "output_tokens_per_s") for c in cells]
    y = [_estimate(c, metric) for c in cells]
    axes.errorbar(
        [e.value for e in x],
        [(e.value or 0.0) * 1e3 for e in y],
        xerr=_bars(x, 1.0),
        yerr=_bars(y, 1e3),
        color=style.color,
        marker=style.marker,
        linestyle=style.linestyle,
        elinewidth=1,
        capsize=2,
    )
    for cell, at_x, at_y in zip(cells, x, y, strict=True):
        axes.annotate(
            cell.workload.level,
            (at_x.value or 0.0, (at_y.value or 0.0) * 1e3),
            xytext=(6, -11),
            textcoords="offset points",
            fontsize=8.5,
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
    ttft, gaps = [], []
    styles = styles_of(summary)
    for number, workload in enumerate(workloads_of(summary)):
        cells = [c for c in summary.cells if c.workload.key == workload.key]
        samples = {c.candidate.key: pooled(c, runs) for c in cells}
        named = (
            (ttft, "TTFT", {k: s[0] for k, s in samples.items()}, slo.ttft_s if slo else None),
            (gaps, "chunk gap", {k: s[1] for k, s in samples.items()}, None),
        )
        for panels, what, values, limit_s in named:
            if any(v.size for v in values.values()):
                key = f"{what.replace(' ', '-').lower()}-{number}"
                panels.append(_distribution(key, what, workload, values, limit_s, styles))
    return ttft, gaps


def _distribution(
    key: str,
    what: str,
    workload: Workload,
    samples: Mapping[str, Array],
    limit_s: float | None,
    styles: Mapping[str, Style],
) -> Panel:
    with drawing():
        figure, (axes,) = new_figure(height_in=3.0)
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
        _limit(axes, limit_s)
        _scale(axes, np.concatenate([v[np.isfinite(v)] for v in samples.values()]) * 1e3)
        title = f"Distribution of {what}, {workload.label}"
        svg = to_svg(figure, key=key, title=title)
    counts = " and ".join(f"{v.size:,}" for v in samples.values())
    caption = f"Share of {counts} samples with a {what} (ms) at or below x; further left is better."
    return Panel(svg=svg, caption=caption)


def _scale(axes: Axes, values: Array) -> None:
    positive = values[values > 0]
    if not positive.size or positive.max() / positive.min() < _LOG_SPAN:
        return
    axes.set_xscale("log")
    span = positive.max() / positive.min()
    subs = (1.0, 2.0, 5.0) if span < 1e3 else (1.0,)  # noqa: PLR2004 (three decades)
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
