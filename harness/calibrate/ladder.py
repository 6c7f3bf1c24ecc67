"""Which load comes next: first the usual ones, then up until the client no longer keeps up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.calibrate.point import Finding, Load, Point

_ANSWER_S = 2.0  # how long an answer takes, its TTFT left out
_ROUNDS = 4  # answers of each stream
_LEAST_REQUESTS = 200  # so that a P99 is not the worst of a few
_RUNG_STREAMS = 256
_RUNG_FACTOR = 1.5
_TOP_TOKENS_PER_S = 1e6  # more than any server of ours sends


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The loads that are always played, and whether to climb on from the best of them."""

    base: tuple[Load, ...]
    climbs: bool

    def next_load(self, done: Sequence[Point]) -> Load | None:
        """The load after these points, in the order they were measured; None: enough is known.

        The climb goes up by 1.5 in tokens a second of 256 streams, from above the best good
        load. After the first failure one load halfway (geometric) sharpens the result.
        """
        if len(done) < len(self.base):
            return self.base[len(done)]
        good = [point.asked_tokens_per_s for point in done if point.finding is Finding.GOOD]
        if not self.climbs or not good:
            return None
        climbed = done[len(self.base) :]
        failed = [point for point in climbed if point.finding is not Finding.GOOD]
        if not failed:
            return _rung_above(max(good))
        if climbed[-1] is not failed[0] or failed[0].finding is Finding.SERVER_LATE:
            return None
        return _load(_RUNG_STREAMS, _halfway(max(good), failed[0].asked_tokens_per_s))


def _load(streams: int, tokens_per_s: float) -> Load:
    return Load(
        streams=streams,
        tokens_per_s=tokens_per_s,
        requests=max(streams * _ROUNDS, _LEAST_REQUESTS),
        tokens=max(round(tokens_per_s * _ANSWER_S), 2),
    )


def _rung_above(asked_tokens_per_s: float) -> Load | None:
    rate = 50.0
    while _RUNG_STREAMS * rate <= asked_tokens_per_s:
        rate *= _RUNG_FACTOR
    return _load(_RUNG_STREAMS, rate) if _RUNG_STREAMS * rate <= _TOP_TOKENS_PER_S else None


def _halfway(good_tokens_per_s: float, bad_tokens_per_s: float) -> float:
    return math.sqrt(good_tokens_per_s * bad_tokens_per_s) / _RUNG_STREAMS


FULL = Ladder(base=tuple(_load(streams, 50.0) for streams in (16, 64, 256, 1000)), climbs=True)
QUICK = Ladder(
    base=(Load(streams=8, tokens_per_s=50.0, requests=24, tokens=25),),
    climbs=False,
)
