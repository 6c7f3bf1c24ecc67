"""What may be asked for: a table of objectives, each with the metric that it is judged by."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harness.analysis.model import Candidate
from harness.types import Estimate

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
            metrics=(GOOD_TOKENS,),
            unit="per million tokens",
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


def cost_per_million(price_per_hour: float, tokens_per_s: float) -> float:
    """Price of a million good output tokens on a machine that is always busy.

    price / (3600 s x tokens/s) x 1e6: the price of an hour over the tokens of an hour.
    """
    return price_per_hour / (3600.0 * tokens_per_s) * 1e6


def cost_estimate(candidate: Candidate, tokens: Estimate) -> Estimate:
    """Cost from a throughput; the interval turns round. None without a price or a throughput."""
    price = candidate.price_per_hour

    def cost(tokens_per_s: float | None) -> float | None:
        if price is None or not tokens_per_s:
            return None
        return cost_per_million(price, tokens_per_s)

    return Estimate(
        value=cost(tokens.value),
        ci_low=cost(tokens.ci_high),
        ci_high=cost(tokens.ci_low),
        n=tokens.n,
        n_eff=tokens.n_eff,
    )


def has_prices(candidates: list[Candidate]) -> bool:
    """Whether every candidate has a price, all in one currency."""
    priced = all(candidate.price_per_hour is not None for candidate in candidates)
    return priced and len({candidate.currency for candidate in candidates}) == 1
