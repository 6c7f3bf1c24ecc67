"""The timeline of what an engine said of itself during one run of each candidate."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes

from harness.analysis.frame import Floats
from harness.analysis.model import Candidate, Summary
from harness.report.names import candidates_of
from harness.report.palette import BAND, MUTED, Style
from harness.report.panel import Panel, styles_of
from harness.report.svg import drawing, new_figure, to_svg
from harness.store import StoredRun
from harness.types import Level

_MAX_POINTS = 400


def timeline_panels(summary: Summary, runs: Mapping[str, StoredRun]) -> list[Panel]:
    """Requests waiting and running, and KV use, over one run; the first run of each candidate."""
    styles = styles_of(summary)
    panels = []
    for number, candidate in enumerate(candidates_of(summary)):
        run = _first_run(summary, candidate, runs)
        table = run.engine_samples() if run else None
        if run and table is not None and table.num_rows and _says_something(table):
            panels.append(_panel(f"timeline-{number}", candidate, run, styles[candidate.key]))
    return panels


def _first_run(
    summary: Summary, candidate: Candidate, runs: Mapping[str, StoredRun]
) -> StoredRun | None:
    ids = [i for c in summary.cells if c.candidate.key == candidate.key for i in c.run_ids]
    return next((runs[i] for i in ids if i in runs), None)


def _says_something(table: pa.Table) -> bool:
    names = ("running", "waiting", "kv_usage_ratio")
    return any(table[name].null_count < table.num_rows for name in names)


def _panel(key: str, candidate: Candidate, run: StoredRun, style: Style) -> Panel:
    table = run.engine_samples()
    has_kv = table["kv_usage_ratio"].null_count < table.num_rows
    with drawing():
        figure, axes = new_figure(rows=2 if has_kv else 1, height_in=3.6 if has_kv else 2.3)
        axes[0].set_title(candidate.label)
        axes[0].set_ylabel("requests")
        _trace(axes[0], table, "running", style.color, "-")
        _trace(axes[0], table, "waiting", MUTED, (0, (3, 2)))
        axes[0].set_ylim(0, axes[0].get_ylim()[1] * 1.25)
        if has_kv:
            axes[1].set_ylabel("KV use (%)")
            _trace(axes[1], table, "kv_usage_ratio", style.color, "-", scale=100)
            axes[1].set_ylim(bottom=0)
        axes[-1].set_xlabel("time since the start of the load (s)")
        _levels(axes, run.info.levels)
        title = f"Queue and KV use over time, {candidate.label}"
        svg = to_svg(figure, key=key, title=title)
    kv = "and the share of the KV pool in use" if has_kv else "(the engine does not tell KV use)"
    caption = (
        f"Requests running (solid) and waiting (dashed) {kv}; shaded: "
        f"measured windows. Run {run.info.run_id}. "
        "A queue that grows through a window means overload."
    )
    return Panel(svg=svg, caption=caption)


def _trace(
    axes: Axes,
    table: pa.Table,
    column: str,
    color: str,
    linestyle: str | tuple[int, tuple[int, ...]],
    *,
    scale: float = 1.0,
) -> None:
    t, values = _floats(table, "t_s"), _floats(table, column) * scale
    if np.isnan(values).all():
        return
    starts = np.arange(0, t.size, max(1, int(np.ceil(t.size / _MAX_POINTS))))
    axes.step(
        t[starts],
        np.fmax.reduceat(values, starts),  # the highest of each stretch: peaks must show
        where="post",
        color=color,
        linestyle=linestyle,
        linewidth=1.4,
    )


def _floats(table: pa.Table, column: str) -> Floats:
    return np.asarray(table[column].to_numpy(zero_copy_only=False), dtype=np.float64)


def _levels(axes: Sequence[Axes], levels: Sequence[Level]) -> None:
    for level in levels:
        for one in axes:
            one.axvspan(level.window_start_s, level.window_end_s, color=BAND, linewidth=0, zorder=0)
        axes[0].annotate(
            level.name,
            ((level.window_start_s + level.window_end_s) / 2, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, -3),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=8,
            color=MUTED,
        )
