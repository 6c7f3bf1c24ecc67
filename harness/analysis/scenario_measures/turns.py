"""Measures within a level: the turns of its sessions, and the adapters that it names."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.analysis.scenario_measures.runs import (
    Part,
    PlayedRun,
    levels_of,
    over,
    parts_of,
    pooled,
    ratio_estimate,
)
from harness.analysis.scenario_measures.table import Figure, Found
from harness.types import Estimate
from harness.units import estimate

_MOST_TURNS = 12
_TIMES = "×"


def turn_ttft(runs: Sequence[PlayedRun]) -> Found:
    """TTFT of each turn of the sessions; a history that is read again makes later ones wait."""
    figures: list[Figure] = []
    said = ""
    for level, views in levels_of(runs).items():
        turns = list(parts_of(views, "turn").items())[:_MOST_TURNS]
        for number, (_, parts) in enumerate(turns, start=1):
            value = pooled(parts, "ttft_s", 0.5)
            label = f"turn {number}, TTFT P50"
            figures.append(Figure(label=label, unit="s", value=value, level=level))
        if len(turns) > 1:
            ratio = _ratio(runs, level, turns[-1][0], turns[0][0])
            label = f"turn {len(turns)} over turn 1"
            figures.append(Figure(label=label, unit=_TIMES, value=ratio, level=level))
            said = (
                f"the median TTFT of turn {len(turns)} is {estimate(ratio, _TIMES)} that of turn 1"
            )
    return (figures, said or "there is one turn only") if figures else ([], "there are no turns")


def _ratio(runs: Sequence[PlayedRun], level: str, above: Any, below: Any) -> Estimate:
    def median(parts: Mapping[Any, Sequence[Part]], name: Any) -> float | None:
        return parts[name][0].percentile("ttft_s", 0.5) if name in parts else None

    each = [_parts(run, level, "turn") for run in runs]
    return ratio_estimate([over(median(parts, above), median(parts, below)) for parts in each])


def lora_spread(runs: Sequence[PlayedRun]) -> Found:
    """How unlike the adapters are served: the slowest over the fastest."""
    figures: list[Figure] = []
    said = ""
    for level, views in levels_of(runs).items():
        adapters = parts_of(views, "lora")
        if len(adapters) < 2:  # noqa: PLR2004 a spread needs two
            continue
        for title, column in (("TTFT P50", "ttft_s"), ("TPOT P50", "tpot_s")):
            ratio = ratio_estimate([_spread(run, level, column) for run in runs])
            label = f"slowest over fastest adapter, {title}"
            figures.append(Figure(label=label, unit=_TIMES, value=ratio, level=level))
            times = estimate(ratio, _TIMES)
            said = said or f"{title} of the slowest adapter is {times} the fastest's"
        for name, parts in adapters.items():
            value = pooled(parts, "ttft_s", 0.5)
            figures.append(Figure(label=f"{name}, TTFT P50", unit="s", value=value, level=level))
    return (figures, said) if figures else ([], "fewer than two adapters were asked for")


def _spread(run: PlayedRun, level: str, column: str) -> float | None:
    medians = [parts[0].percentile(column, 0.5) for parts in _parts(run, level, "lora").values()]
    known = [median for median in medians if median is not None]
    return over(max(known), min(known)) if known and len(known) == len(medians) else None


def _parts(run: PlayedRun, level: str, column: str) -> dict[Any, list[Part]]:
    view = run.by_level.get(level)
    return parts_of([view], column) if view else {}
