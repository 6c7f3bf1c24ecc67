"""The figures of distributions: empirical CDFs of TTFT and of the gaps between chunks."""

from collections.abc import Mapping

import numpy as np

from harness.analysis.frame import Floats
from harness.analysis.model import Summary, Workload
from harness.config import SloConf
from harness.report.names import workloads_of
from harness.report.palette import MUTED, Style
from harness.report.panel import Panel, draw_limit, scale_axis, styles_of
from harness.report.samples import Samples, curve
from harness.report.svg import drawing, new_figure, to_svg
from harness.store import StoredRun


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
        draw_limit(axes.xaxis, limit_s, seen_ms)
        scale_axis(axes.xaxis, seen_ms)
        title = f"Distribution of {what}, {workload.label}"
        svg = to_svg(figure, key=key, title=title)
    counts = " and ".join(f"{v.size:,}" for v in samples.values())
    caption = f"Share of {counts} samples with a {what} (ms) at or below x; further left is better."
    return Panel(svg=svg, caption=caption)
