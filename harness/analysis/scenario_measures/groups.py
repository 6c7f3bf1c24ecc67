"""How groups of requests bear each other: who waits for whom, and what others lose."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.analysis.scenario_measures.runs import (
    Part,
    PlayedRun,
    levels_of,
    mean_input,
    over,
    parts_of,
    pooled,
    ratio_estimate,
)
from harness.analysis.scenario_measures.table import Figure, Found
from harness.analysis.views import LevelView
from harness.types import Estimate
from harness.units import number

_TIMES = "×"


def ttft_by_group(runs: Sequence[PlayedRun]) -> Found:
    """TTFT of each group at each level, and how many times what it is without the others."""
    figures: list[Figure] = []
    worst: tuple[float, str] | None = None
    levels = levels_of(runs)
    alone = _alone(levels)
    for level, views in levels.items():
        groups = parts_of(views, "group")
        if level in alone.values() or not groups:
            continue
        for name in sorted(groups, key=lambda name: mean_input(groups[name])):
            figures += _two_percentiles(str(name), groups[name], level)
        for label, ratio in _ratios(runs, level, groups, alone):
            figures.append(Figure(label=label, unit=_TIMES, value=ratio, level=level))
            if ratio.value is not None and (worst is None or ratio.value > worst[0]):
                worst = ratio.value, f"{label} at {level}"
    for name, level in alone.items():
        figures += _two_percentiles(f"{name} alone", parts_of(levels[level], "group")[name], level)
    if not figures:
        return [], "no request says which group it is of"
    if worst is None:
        return figures, "there is one group only, so that nothing waits for another"
    return figures, f"the median TTFT of {worst[1]} is {number(worst[0])} times as long"


def _two_percentiles(name: str, parts: Sequence[Part], level: str) -> list[Figure]:
    return [
        Figure(label=f"{name}, TTFT {p}", unit="s", value=pooled(parts, "ttft_s", q), level=level)
        for p, q in (("P50", 0.5), ("P90", 0.9))
    ]


def _alone(levels: Mapping[str, Sequence[LevelView]]) -> dict[Any, str]:
    """Which level, if any, is played by a group alone while others share a level."""
    found: dict[Any, str] = {}
    groups = {level: parts_of(views, "group") for level, views in levels.items()}
    if any(len(parts) > 1 for parts in groups.values()):
        for level, parts in groups.items():
            if len(parts) == 1:
                found.setdefault(next(iter(parts)), level)
    return found


def _ratios(
    runs: Sequence[PlayedRun],
    level: str,
    groups: Mapping[Any, Sequence[Part]],
    alone: Mapping[Any, str],
) -> list[tuple[str, Estimate]]:
    shortest = min(groups, key=lambda name: mean_input(groups[name]))
    found = []
    for name in groups:
        if name in alone:
            label, base = f"{name} over {name} alone", (alone[name], name)
        elif name != shortest:
            label, base = f"{name} over {shortest}", (level, shortest)
        else:
            continue
        ratios = [over(_median(run, level, name), _median(run, *base)) for run in runs]
        found.append((label, ratio_estimate(ratios)))
    return found


def _median(run: PlayedRun, level: str, group: Any) -> float | None:
    view = run.by_level.get(level)
    parts = parts_of([view], "group").get(group) if view else None
    return parts[0].percentile("ttft_s", 0.5) if parts else None


def others_loss(runs: Sequence[PlayedRun]) -> Found:
    """What the light ones lose beside the heavy one, from a level without it and one with it."""
    figures: list[Figure] = []
    said = ""
    for without, together, names in _level_pairs(levels_of(runs)):
        for title, column, p in (
            ("TTFT P50", "ttft_s", 0.5),
            ("TTFT P90", "ttft_s", 0.9),
            ("TPOT P50", "tpot_s", 0.5),
        ):
            ratio = ratio_estimate(
                [
                    over(_of(run, together, names, column, p), _of(run, without, names, column, p))
                    for run in runs
                ]
            )
            who = " and ".join(names)
            figures.append(
                Figure(label=f"{who}, {title}", unit=_TIMES, value=ratio, level=together)
            )
            if not said and ratio.value is not None:
                said = f"{title} of {who} is {number(ratio.value)} times as long beside the others"
    if not figures:
        return [], "it takes a level without the heavy group and one with it (load.group_users)"
    return figures, said or "no run carries both levels"


def _level_pairs(
    levels: Mapping[str, Sequence[LevelView]],
) -> list[tuple[str, str, tuple[str, ...]]]:
    """(level without, level with, groups of the first): the second has all of them and more."""
    groups = {level: set(parts_of(views, "group")) for level, views in levels.items()}
    return [
        (few, many, tuple(sorted(str(name) for name in groups[few])))
        for few in groups
        for many in groups
        if groups[few] and groups[few] < groups[many]
    ]


def _of(run: PlayedRun, level: str, names: Sequence[str], column: str, p: float) -> float | None:
    view = run.by_level.get(level)
    if view is None:
        return None
    keep = view.measured["group"].isin(list(names)).to_numpy(dtype=bool)
    return Part(view=view, keep=keep).percentile(column, p)
