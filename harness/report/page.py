"""The page: every value of the summary in words, tables and figures, laid out by the template."""

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness.analysis.metrics import METRICS
from harness.analysis.model import Summary
from harness.config import SloConf
from harness.recommend.model import Decision
from harness.report.advice import advice
from harness.report.client import HEADS, client_section
from harness.report.comparable import READING, comparable
from harness.report.cost import cost_section
from harness.report.distributions import distribution_panels
from harness.report.doubts import doubt_groups
from harness.report.engines import START_HEADS, TELLS_HEADS, emulated_labels, engine_rows
from harness.report.found import found_tables
from harness.report.measures import measure_tables
from harness.report.memory import HEADS as MEMORY_HEADS
from harness.report.memory import memory_rows
from harness.report.names import candidates_of
from harness.report.panel import styles_of
from harness.report.settings import run_settings
from harness.report.tables import comparison, pair_tables
from harness.report.text import verdict_lines
from harness.report.timeline import timeline_panels
from harness.report.tradeoff import tradeoff_panels
from harness.store import StoredRun
from harness.types import VerdictKind
from harness.units import count, seconds

_HERE = Path(__file__).parent
# Anchor, title, and what must be there for the section to be: figures of cells, or its own.
_SECTIONS = (
    ("verdict", "Verdict", "verdict"),
    ("found", "Highest rate within the SLO", "found"),
    ("comparable", "What may be compared", "rows"),
    ("measures", "What this scenario is about", "measures"),
    ("figures", "All figures", "rows"),
    ("tradeoff", "Throughput against latency", "tradeoff"),
    ("ttft", "Time to first token", "ttft"),
    ("gaps", "Chunk gaps", "gaps"),
    ("timeline", "Timeline", "rows"),
    ("engines", "Engines", "engines"),
    ("client", "Load and client", "rows"),
    ("cost", "Cost", "rows"),
    ("failed", "Failed runs", "failed"),
    ("doubts", "Doubts", "verdict"),
    ("settings", "Settings", "settings"),
    ("definitions", "Definitions", "definitions"),
)


def render(
    summary: Summary,
    runs: Sequence[StoredRun],
    *,
    slo: SloConf | None = None,
    decision: Decision | None = None,
) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    context = {
        **_frame(summary, slo, decision),
        **_tables(summary, slo),
        **_figures(summary, runs, slo),
        **_engines(summary, runs),
    }
    context["sections"] = [(anchor, name) for anchor, name, needs in _SECTIONS if context[needs]]
    text = environment.get_template("page.html.j2").render(context)
    return text if text.endswith("\n") else f"{text}\n"


def _frame(summary: Summary, slo: SloConf | None, decision: Decision | None) -> dict[str, Any]:
    names = ("Answer", "Not decided", "Trust")
    swatches = {key: style.swatch() for key, style in styles_of(summary).items()}
    return {
        "title": summary.title or "Comparison of LLM inference engines",
        "css": (_HERE / "page.css").read_text(encoding="utf-8"),
        "facts": _facts(summary),
        "emulated": emulated_labels(summary),
        "verdict": list(zip(names, verdict_lines(summary, slo), strict=True)),
        "tally": _tally(summary),
        "decision": None if decision is None else advice(decision),
        "candidates": [
            {"label": c.label, "swatch": swatches[c.key]} for c in candidates_of(summary)
        ],
        "swatches": swatches,
        "limits": _limits(slo),
        "run_count": len(summary.runs),
        "definitions": METRICS,
        "reading": READING,
    }


def _tables(summary: Summary, slo: SloConf | None) -> dict[str, Any]:
    columns, rows = comparison(summary)
    groups = [(name, len(list(g))) for name, g in itertools.groupby(c.group for c in columns)]
    return {
        "comparable": comparable(summary),
        "pairs": pair_tables(summary),
        "columns": columns,
        "groups": groups,
        "rows": rows,
        "found": found_tables(summary),
        "measures": measure_tables(summary),
        "client": client_section(summary),
        "client_heads": HEADS,
        "cost": cost_section(summary, slo),
        "failed": summary.failed,
        "doubts": doubt_groups(summary),
        "settings": run_settings(list(summary.runs.values())),
    }


def _engines(summary: Summary, runs: Sequence[StoredRun]) -> dict[str, Any]:
    return {
        "engines": engine_rows(summary, {run.info.run_id: run for run in runs}),
        "start_heads": START_HEADS,
        "tells_heads": TELLS_HEADS,
        "memory": memory_rows(summary),
        "memory_heads": MEMORY_HEADS,
    }


def _figures(summary: Summary, runs: Sequence[StoredRun], slo: SloConf | None) -> dict[str, Any]:
    by_id = {run.info.run_id: run for run in runs}
    ttft, gaps = distribution_panels(summary, by_id, slo)
    return {
        "tradeoff": tradeoff_panels(summary, slo),
        "ttft": ttft,
        "gaps": gaps,
        "timeline": timeline_panels(summary, by_id),
    }


def _facts(summary: Summary) -> list[tuple[str, str]]:
    days = sorted(run.started_at[:10] for run in summary.runs.values() if run.started_at)
    measured = " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "unknown"
    candidates = candidates_of(summary)
    return [
        ("Measured", measured),
        ("Candidates", count(len(candidates))),
        ("Runs", count(len(summary.runs))),
        ("Requests", count(summary.n)),
        ("Model", ", ".join(sorted({c.model for c in candidates})) or "-"),
        ("Hardware", ", ".join(sorted({c.hardware for c in candidates})) or "-"),
    ]


def _tally(summary: Summary) -> list[tuple[VerdictKind, int]]:
    """Kinds with their counts; a WORSE is somebody's BETTER and is counted as one."""
    kinds: Counter[VerdictKind] = Counter(
        VerdictKind.BETTER if v.kind is VerdictKind.WORSE else v.kind for v in summary.verdicts
    )
    return [(kind, kinds[kind]) for kind in VerdictKind if kinds[kind]]


def _limits(slo: SloConf | None) -> str:
    if slo is None:
        return ""
    named = (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s))
    said = [f"{name} {seconds(limit)}" for name, limit in named if limit is not None]
    return f"the limits of the SLO {slo.name} ({', '.join(said)})" if said else ""
