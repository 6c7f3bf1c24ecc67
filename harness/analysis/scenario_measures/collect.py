"""The measures that a scenario names, from the runs of one candidate."""

from collections.abc import Callable, Mapping, Sequence

from harness.analysis.facts import setting
from harness.analysis.scenario_measures.batch import tokens_per_hour_cost
from harness.analysis.scenario_measures.drift import drift, memory_growth
from harness.analysis.scenario_measures.engine import (
    accepted_tokens_per_step,
    cold_start,
    prefix_hit_ratio,
)
from harness.analysis.scenario_measures.groups import others_loss, ttft_by_group
from harness.analysis.scenario_measures.requests import interactivity, prefill_rate, tail_ratio
from harness.analysis.scenario_measures.runs import PlayedRun
from harness.analysis.scenario_measures.table import Found, Measure
from harness.analysis.scenario_measures.turns import lora_spread, turn_ttft

_MEASURED: Mapping[str, Callable[[Sequence[PlayedRun]], Found]] = {
    "ttft_by_group": ttft_by_group,
    "others_loss": others_loss,
    "accepted_tokens_per_step": accepted_tokens_per_step,
    "prefix_hit_ratio": prefix_hit_ratio,
    "cold_start": cold_start,
    "turn_ttft": turn_ttft,
    "drift": drift,
    "memory_growth": memory_growth,
    "lora_spread": lora_spread,
    "tokens_per_hour_cost": tokens_per_hour_cost,
    "tail_ratio": tail_ratio,
    "prefill_rate": prefill_rate,
    "interactivity": interactivity,
}


def scenario_measures(
    runs: Sequence[PlayedRun], *, candidate: str = "", label: str = ""
) -> tuple[Measure, ...]:
    """What the scenario of these runs names in `scenario.measures`, in its order.

    `runs`: of one candidate at one scenario. `candidate`, `label`: its key and what it is called.
    Names that this version does not know are left out, and so is everything of a run that was
    stored before scenarios named measures.
    """
    if not runs:
        return ()
    info = runs[0].info
    names = [name for name in setting(info, "scenario.measures", ()) if name in _MEASURED]
    found = []
    for name in dict.fromkeys(names):
        figures, says = _MEASURED[name](runs)
        found.append(
            Measure(
                name=name,
                candidate=candidate,
                label=label or info.engine,
                scenario=str(setting(info, "scenario.name", "")),
                figures=tuple(figures),
                says=says,
            )
        )
    return tuple(found)
