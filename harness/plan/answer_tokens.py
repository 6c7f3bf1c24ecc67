"""How many tokens an answer has on average, before any is made: in bounds, for sizes and times."""

import math
from dataclasses import dataclass
from statistics import NormalDist

from harness.config import GroupConf, Lengths, ScenarioConf
from scenarios.length_tables import length_table

_SHARES = [(k + 0.5) / 200 for k in range(200)]  # a distribution as 200 equally likely values


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTokens:
    """Tokens of an answer: `mean` over very many; of a few they lie between `low` and `high`."""

    low: float
    mean: float
    high: float


def answer_tokens(scenario: ScenarioConf, group: str | None = None) -> AnswerTokens:
    """The answers of a scenario, or of one of its groups.

    Uniform lengths: minimum, middle and maximum. A table or a lognormal: its 10 % and 90 %
    quantiles, and its mean, clipped as the scenario clips them. A mixture: from its shortest
    group to its longest.

    Raises:
        ConfigError: the length table cannot be read.
    """
    groups = [one for one in scenario.groups if group in (None, one.name)]
    if not groups:
        return _own(scenario)
    parts = [_of_group(scenario, one) for one in groups]
    weights = [one.share if group is None else 1.0 for one in groups]
    total = sum(weights)
    return AnswerTokens(
        low=min(part.low for part in parts),
        mean=sum(w * part.mean for w, part in zip(weights, parts, strict=True)) / total,
        high=max(part.high for part in parts),
    )


def _of_group(scenario: ScenarioConf, group: GroupConf) -> AnswerTokens:
    if group.output_tokens is None:
        return _own(scenario)
    return _uniform(group.output_tokens_min, group.output_tokens)


def _own(scenario: ScenarioConf) -> AnswerTokens:
    least, most = scenario.output_tokens_min, scenario.output_tokens
    if scenario.lengths is Lengths.EMPIRICAL:
        table = length_table(scenario.length_source)
        drawn = [float(table.quantile("output", share)) for share in _SHARES]
    elif scenario.lengths is Lengths.LOGNORMAL:
        mean, sigma = scenario.lognormal.output_log_mean, scenario.lognormal.output_log_sigma
        normal = NormalDist(mean or 0.0, sigma or 1.0)
        drawn = [math.exp(normal.inv_cdf(share)) for share in _SHARES]
    elif scenario.lengths is Lengths.TRACE:  # its rows are counted where they are known
        return AnswerTokens(low=1.0, mean=most / 2, high=float(most))
    else:
        return _uniform(least, most)
    clipped = [min(max(tokens, float(least or 1)), float(most)) for tokens in drawn]
    low, high = (clipped[round(share * len(clipped))] for share in (0.1, 0.9))
    return AnswerTokens(low=low, mean=sum(clipped) / len(clipped), high=high)


def _uniform(low: int | None, high: int) -> AnswerTokens:
    low = high if low is None else low
    return AnswerTokens(low=float(low), mean=(low + high) / 2, high=float(high))
