"""What the engine did beside answering: drafts accepted, prefixes reused, its cold start."""

from collections.abc import Sequence

import numpy as np

from harness.analysis.frame import floats
from harness.analysis.intervals import estimate_mean
from harness.analysis.measure import plain_value
from harness.analysis.scenario_measures.runs import (
    Part,
    PlayedRun,
    levels_of,
    over,
    ratio_estimate,
)
from harness.analysis.scenario_measures.table import Figure, Found
from harness.analysis.views import LevelView
from harness.types import Estimate
from harness.units import estimate

_TIMES = "×"


def accepted_tokens_per_step(runs: Sequence[PlayedRun]) -> Found:
    """Accepted draft tokens a step, from the answers, else from the engine's counters."""
    figures: list[Figure] = []
    said = ""
    for level, views in levels_of(runs).items():
        counts = [_speculation(view) for view in views]
        accepted = _mean([over(a, output - a) for _, a, output in counts])
        if accepted.value is None:
            chunks = _mean([plain_value(view, "tokens_per_chunk") for view in views])
            label = "tokens a chunk (chunks, not steps)"
            figures.append(Figure(label=label, unit="tokens", value=chunks, level=level))
            said = said or "the engine does not count what it accepts: chunks are not steps"
            continue
        share = _mean([over(a, draft) for draft, a, _ in counts])
        figures += [
            Figure(label="accepted tokens a step", unit="tokens", value=accepted, level=level),
            Figure(label="accepted of drafted", unit="ratio", value=share, level=level),
        ]
        said = f"{estimate(accepted, 'draft tokens')} are accepted a step at {level}"
    return figures, said or "nothing was measured"


def _speculation(view: LevelView) -> tuple[float, float, float]:
    """(drafted, accepted, output) tokens; NaN where neither answers nor engine tell."""
    accepted, is_ok = view.column("accepted_tokens"), view.flag("is_ok")
    known = is_ok & ~np.isnan(accepted)
    if known.any():
        names = ("draft_tokens", "accepted_tokens", "output_tokens")
        drafted, taken, output = (float(view.column(name)[known].sum()) for name in names)
    else:
        names = ("draft_tokens_total", "accepted_tokens_total", "generation_tokens_total")
        drafted, taken, output = (_rise(view, name) for name in names)
    return drafted, taken, output


def prefix_hit_ratio(runs: Sequence[PlayedRun]) -> Found:
    """What came out of the cache, against what the plan made reusable."""
    figures: list[Figure] = []
    said = ""
    for level, views in levels_of(runs).items():
        hits = _mean([_hits(view) for view in views])
        planned = _mean([_reusable(view) for view in views])
        figures += [
            Figure(label="prompt tokens from the cache", unit="ratio", value=hits, level=level),
            Figure(label="reusable by the plan", unit="ratio", value=planned, level=level),
        ]
        if hits.value is not None:
            said = (
                f"{estimate(hits, 'ratio')} of the prompt tokens came out of the cache at {level}, "
                f"where the plan made {estimate(planned, 'ratio')} reusable"
            )
    return figures, said or "neither the answers nor the engine tell what came out of the cache"


def _hits(view: LevelView) -> float | None:
    cached, prompt = view.column("cached_tokens"), view.column("prompt_tokens")
    known = view.flag("is_ok") & ~np.isnan(cached) & ~np.isnan(prompt)
    if known.any():
        return over(float(cached[known].sum()), float(prompt[known].sum()))
    rises = _rise(view, "prefix_cached_tokens_total"), _rise(view, "prompt_tokens_total")
    return None if np.isnan(rises).any() else over(*rises)


def _reusable(view: LevelView) -> float | None:
    shared, planned = view.column("prefix_tokens"), view.column("planned_input_tokens")
    known = ~np.isnan(shared)
    return over(float(shared[known].sum()), float(planned[known].sum())) if known.any() else None


def _rise(view: LevelView, name: str) -> float:
    """How far a counter of the engine rose in the window; NaN if it is not exposed."""
    counter = floats(view.engine[name])
    counter = counter[~np.isnan(counter)]
    return float(counter[-1] - counter[0]) if counter.size > 1 else float("nan")


def cold_start(runs: Sequence[PlayedRun]) -> Found:
    """How long until the server answers, and how much slower its first answers are."""
    ready = _mean([run.info.time_to_ready_s for run in runs])
    firsts = [_first_answers(run) for run in runs]
    first = _mean([value for value, _ in firsts])
    ratio = ratio_estimate([over(*pair) for pair in firsts])
    figures = [
        Figure(label="time to ready", unit="s", value=ready),
        Figure(label="first answers, TTFT P50", unit="s", value=first),
        Figure(label="first answers over the level's median", unit=_TIMES, value=ratio),
    ]
    return figures, (
        f"ready after {estimate(ready, 's')}; the first answers take {estimate(ratio, _TIMES)} "
        "the median TTFT"
    )


def _first_answers(run: PlayedRun) -> tuple[float | None, float | None]:
    """Median TTFT of the first request of each user of the first level, and of that level."""
    if not run.views or run.views[0].is_empty:
        return None, None
    view = run.views[0]
    n = len(view.measured)
    first = np.arange(n) < max(1, min(view.level.users or 1, n // 4))
    parts = [Part(view=view, keep=keep) for keep in (first, np.ones(n, dtype=bool))]
    values = [part.percentile("ttft_s", 0.5) for part in parts]
    return values[0], values[1]


def _mean(values: Sequence[float | None]) -> Estimate:
    return estimate_mean([value for value in values if value is not None and not np.isnan(value)])
