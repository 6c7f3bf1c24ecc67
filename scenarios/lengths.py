"""How long request *i* is: input and output tokens, as the scenario says.

Input and output are drawn independently of each other: in public traces they hardly correlate
(method.md 2.2, |r| < .1).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from harness.config import GroupConf, LognormalConf, ScenarioConf
from harness.config import Lengths as Kind
from scenarios.length_tables import SIDES, length_table
from scenarios.streams import draw_int, stream

_LEAST_SHARE = 1e-12  # random() may give 0, where a lognormal has no quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """What is asked of one request, in tokens of the model's tokenizer, special tokens left out."""

    input_tokens: int
    output_tokens: int


def lengths(conf: ScenarioConf, seed: str, index: int, group: GroupConf | None = None) -> Lengths:
    """The lengths of request `index`, a pure function of (conf, seed, index, group).

    Uniform on [`input_tokens_min`, `input_tokens`] and [`output_tokens_min`, `output_tokens`]
    (a minimum of None makes the length fixed), or drawn from the table or the lognormal and
    clipped to these bounds. A group's own length is uniform; what it leaves open is the
    scenario's.

    Raises:
        ConfigError: the length table cannot be read.
    """
    return Lengths(
        input_tokens=_one(conf, seed, index, "input", group),
        output_tokens=_one(conf, seed, index, "output", group),
    )


def longest(conf: ScenarioConf, group: GroupConf | None = None) -> Lengths:
    """The longest prompt and answer that a request of this group may have."""
    own = [getattr(group, f"{side}_tokens", None) for side in SIDES]
    return Lengths(
        input_tokens=own[0] or conf.input_tokens, output_tokens=own[1] or conf.output_tokens
    )


def _one(conf: ScenarioConf, seed: str, index: int, side: str, group: GroupConf | None) -> int:
    purpose = f"{side}_tokens"
    if group is not None and getattr(group, purpose) is not None:
        low, high = _bounds(group, side)
    else:
        low, high = _bounds(conf, side)
        quantile = _quantile(conf, side)
        if quantile is not None:
            tokens = quantile(stream(seed, purpose, index).random())
            return min(max(tokens, low or 1), high)
    if low is None or low == high:
        return high
    return draw_int(stream(seed, purpose, index), low, high)


def _bounds(conf: ScenarioConf | GroupConf, side: str) -> tuple[int | None, int]:
    return getattr(conf, f"{side}_tokens_min"), getattr(conf, f"{side}_tokens")


def _quantile(conf: ScenarioConf, side: str) -> Callable[[float], int] | None:
    """Tokens by share (0..1) where lengths are drawn from a distribution, before clipping."""
    if conf.lengths is Kind.EMPIRICAL:
        table = length_table(conf.length_source)
        return lambda share: table.quantile(side, share)
    if conf.lengths is Kind.LOGNORMAL:
        log_tokens = _log_tokens(conf.lognormal, side)
        return lambda share: round(math.exp(log_tokens.inv_cdf(max(share, _LEAST_SHARE))))
    return None


def _log_tokens(conf: LognormalConf, side: str) -> NormalDist:
    return NormalDist(getattr(conf, f"{side}_log_mean"), getattr(conf, f"{side}_log_sigma"))


def length_facts(conf: ScenarioConf) -> Mapping[str, Any]:
    """Where drawn lengths come from and how many the bounds clip, JSON-able.

    {} for lengths that the configuration (uniform) or the load (a trace) says in full.
    `clipped_input_ratio`, `clipped_output_ratio`: the share (0..1) of draws that are below the
    scenario's minimum or beyond its longest, and became that.

    Raises:
        ConfigError: the length table cannot be read.
    """
    if conf.lengths is Kind.EMPIRICAL:
        facts: Mapping[str, Any] = length_table(conf.length_source).facts
    elif conf.lengths is Kind.LOGNORMAL:
        facts = {"note": "lognormal: a fallback for want of data; it misses real tails"}
    else:
        return {}
    clipped = {f"clipped_{side}_ratio": _clipped_ratio(conf, side) for side in SIDES}
    return {"lengths": conf.lengths.value, **facts, **clipped}


def _clipped_ratio(conf: ScenarioConf, side: str) -> float:
    low, high = _bounds(conf, side)
    at_most = _share_at_most(conf, side)
    return round(at_most((low or 1) - 1) + 1 - at_most(high), 6)


def _share_at_most(conf: ScenarioConf, side: str) -> Callable[[int], float]:
    if conf.lengths is Kind.EMPIRICAL:
        table = length_table(conf.length_source)
        return lambda tokens: table.share_at_most(side, tokens)
    log_tokens = _log_tokens(conf.lognormal, side)
    return lambda tokens: log_tokens.cdf(math.log(tokens + 0.5))
