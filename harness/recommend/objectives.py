"""What may be asked for: a table of objectives, each with the metric that it is judged by."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harness.analysis.model import Candidate

ATTAINMENT = "attainment_ratio"
GOOD_TOKENS = "good_tokens_per_s"
OUTPUT_TOKENS = "output_tokens_per_s"
SHOWN = (GOOD_TOKENS, OUTPUT_TOKENS, "ttft_p50_s", "ttft_p90_s", "tpot_p50_s", "e2e_p90_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One thing to want. `metrics`: the first that every contender carries is used.

    `at_lowest_load`: judged at the lowest load asked, else at the highest that meets the SLO.
    """

    name: str
    metrics: tuple[str, ...]
    unit: str
    higher_is_better: bool
    words: str
    at_lowest_load: bool = False


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "cost": Objective(
            name="cost",
            metrics=(GOOD_TOKENS, OUTPUT_TOKENS),
            unit="per 1M tokens",
            higher_is_better=False,
            words="cheapest",
        ),
        "latency": Objective(
            name="latency",
            metrics=("e2e_p90_s", "ttft_p90_s", "e2e_p50_s", "ttft_p50_s"),
            unit="s",
            higher_is_better=False,
            words="fastest to answer",
            at_lowest_load=True,
        ),
        "throughput": Objective(
            name="throughput",
            metrics=(GOOD_TOKENS, OUTPUT_TOKENS),
            unit="tokens/s",
            higher_is_better=True,
            words="highest in throughput",
        ),
    }
)


def has_prices(candidates: list[Candidate]) -> bool:
    """Whether every candidate has a price, all in one currency."""
    priced = all(candidate.price_per_hour is not None for candidate in candidates)
    return priced and len({candidate.currency for candidate in candidates}) == 1
