"""Money: what a million tokens cost on a machine that never idles, and in a real fleet.

The second is what is paid; with whole machines and peaks it is several times the first.
"""

import math
from dataclasses import dataclass

from harness.errors import ConfigError
from harness.types import Estimate

_HOUR_S = 3600.0
_DAY_S = 86400.0
NO_PRICE = (
    "no price is known: give hardware.price.per_hour with its currency, date and source "
    "(a price differs by 2.5 times for the same GPU)"
)


def cost_per_million(price_per_hour: float | None, tokens_per_s: float | None) -> float | None:
    """Price of a million tokens at full use: price / (3600 x tokens/s) x 1e6.

    `price_per_hour`: of everything behind `tokens_per_s`. None without a price or a rate; the
    reason for the first is `NO_PRICE`.
    """
    if price_per_hour is None or not tokens_per_s:
        return None
    return price_per_hour / (_HOUR_S * tokens_per_s) * 1e6


def cost_estimate(price_per_hour: float | None, tokens_per_s: Estimate) -> Estimate:
    """Cost from an estimated rate; the interval turns round."""
    low = tokens_per_s.ci_low
    return Estimate(
        value=cost_per_million(price_per_hour, tokens_per_s.value),
        ci_low=cost_per_million(price_per_hour, tokens_per_s.ci_high),
        ci_high=None if low is None or low <= 0 else cost_per_million(price_per_hour, low),
        n=tokens_per_s.n,
        n_eff=tokens_per_s.n_eff,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The machines that a day's tokens need, and what they cost.

    `needed_per_s`: tokens/s at the peak, headroom included. `use_ratio`: tokens served over
    tokens that the fleet could serve. `naive_per_mtok` is the cost at full use, `per_mtok` the
    true one.
    """

    needed_per_s: float
    replicas: int
    use_ratio: float
    per_day: float
    per_mtok: float
    naive_per_mtok: float


def fleet(
    *,
    tokens_per_day: float,
    tokens_per_s: float,
    price_per_hour: float,
    machines: int = 1,
    peak_ratio: float = 3.0,
    headroom_ratio: float = 0.7,
    spare: int = 0,
) -> Fleet:
    """Size a fleet: N = ceil(day x peak / (86400 x rate x headroom)) + spare.

    `tokens_per_s`: of one replica at the highest load that keeps the SLO. `price_per_hour`: of
    one machine, `machines` of them a replica. `peak_ratio`: peak over mean, 3 by default
    (ServeGen: 1.9 to 3.3 over 14 days). `headroom_ratio`: share of the rate that is planned
    with, .7 to .8. `spare`: replicas for redundancy. ConfigError for a value that is not > 0.
    """
    given = {
        "tokens_per_day": tokens_per_day,
        "tokens_per_s": tokens_per_s,
        "price_per_hour": price_per_hour,
        "peak_ratio": peak_ratio,
        "headroom_ratio": headroom_ratio,
    }
    for name, value in given.items():
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name}={value}: must be a finite number > 0")
    needed_per_s = tokens_per_day * peak_ratio / (_DAY_S * headroom_ratio)
    replicas = math.ceil(needed_per_s / tokens_per_s - 1e-9) + spare
    per_day = replicas * machines * price_per_hour * 24
    naive = price_per_hour * machines / (_HOUR_S * tokens_per_s) * 1e6
    return Fleet(
        needed_per_s=needed_per_s,
        replicas=replicas,
        use_ratio=tokens_per_day / (_DAY_S * replicas * tokens_per_s),
        per_day=per_day,
        per_mtok=per_day / (tokens_per_day / 1e6),
        naive_per_mtok=naive,
    )
