"""Which candidate is best, and how surely: resampling of the blocks that all of them share.

A block is a round in which every candidate was started once; what makes one round slow makes
all of them slow, so candidates are compared within blocks and never across.

Resampling whole blocks with replacement says 100 % as soon as two or three blocks agree. So the
blocks' residuals get random normal weights, the same for all candidates (wild bootstrap: Wu
1986), and the draw is widened by the Student factor for few blocks; with two candidates this is
the posterior of a paired t comparison of log values.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DRAWS = 20_000
SEED = 20_261_130
GRAIN = 0.01  # spread between two starts that we take for granted beside what was seen: 1 %
NEAR = 0.05  # practical margin: a difference below 5 % is none
MIN_BLOCKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Candidates' chances, aligned with the rows that were given; best first by `order`.

    `p_best`: of being the best. `p_near`: of being within 5 % of the best. Both stay between
    1/20,000 and 1 - 1/20,000, the resolution of the draws. `spread`: standard deviation of the
    leader's log ratio to the second over blocks; `gap`: its mean.
    """

    order: tuple[int, ...]
    p_best: tuple[float, ...]
    p_near: tuple[float, ...]
    blocks: int
    gap: float
    spread: float


def rank(values: Sequence[Sequence[float]], *, higher_is_better: bool) -> Ranking:
    """Rank candidates by the geometric mean of positive values, shape (candidate, block).

    ValueError with fewer than 2 candidates or 2 blocks.
    """
    import numpy as np  # noqa: PLC0415 -- numpy is a tenth of a second

    logs = np.log(np.asarray(values, dtype=float)) * (1.0 if higher_is_better else -1.0)
    count, blocks = logs.shape
    if count < MIN_BLOCKS or blocks < MIN_BLOCKS:
        raise ValueError(f"shape {logs.shape}: needs 2 candidates and 2 blocks")
    mean = logs.mean(axis=1)
    residuals = logs - mean[:, None]
    random = np.random.default_rng(SEED)
    noise = random.standard_normal((DRAWS, blocks)) @ residuals.T / math.sqrt(blocks - 1)
    noise += random.standard_normal((DRAWS, count)) * (GRAIN / math.sqrt(2))
    student = np.sqrt((blocks - 1) / random.chisquare(blocks - 1, size=(DRAWS, 1)))
    draws = mean + noise * student / math.sqrt(blocks)
    top = draws.max(axis=1, keepdims=True)
    order = np.argsort(-mean, kind="stable")
    ratio = logs[order[0]] - logs[order[1]]
    return Ranking(
        order=tuple(int(i) for i in order),
        p_best=_chances((draws >= top).mean(axis=0)),
        p_near=_chances((draws >= top + math.log1p(-NEAR)).mean(axis=0)),
        blocks=blocks,
        gap=float(ratio.mean()),
        spread=math.hypot(float(ratio.std(ddof=1)), GRAIN),
    )


def _chances(shares: Iterable[float]) -> tuple[float, ...]:
    return tuple(min(max(float(share), 1 / DRAWS), 1 - 1 / DRAWS) for share in shares)
