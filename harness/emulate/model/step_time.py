"""How long a step takes, and the faults that make it longer: jitter, drift, stalls."""

import math
from random import Random

from harness.config import EmulateConf

_HOUR_S = 3600.0


class StepTime:
    """The time of steps: base + sequences + their KV tokens + prompt tokens at the prefill rate."""

    def __init__(self, conf: EmulateConf) -> None:
        self._base_s = conf.step_ms * 1e-3
        self._per_sequence_s = conf.step_per_sequence_ms * 1e-3
        self._per_kv_token_s = conf.step_per_kv_token_us * 1e-6
        self._prefill_tokens_per_s = conf.prefill_tokens_per_s
        self._drift_per_hour = conf.drift_per_hour
        self._jitter_ratio = conf.jitter_ratio
        self._stall_every_s = conf.stall_every_s
        self._stall_s = conf.stall_ms * 1e-3
        self._random = Random(f"jitter {conf.seed}")

    def end_s(self, start_s: float, *, decoding: int, kv_tokens: int, prefill_tokens: int) -> float:
        """When a step ends that starts at `start_s` and does this work."""
        work_s = (
            self._base_s
            + self._per_sequence_s * decoding
            + self._per_kv_token_s * kv_tokens
            + prefill_tokens / self._prefill_tokens_per_s
        )
        work_s *= 1.0 + self._drift_per_hour * start_s / _HOUR_S
        if self._jitter_ratio:
            work_s *= jitter_factor(self._random, self._jitter_ratio)
        if self._stall_every_s is None:
            return start_s + work_s
        return stalled_end_s(start_s, work_s, every_s=self._stall_every_s, stall_s=self._stall_s)


def jitter_factor(random: Random, ratio: float) -> float:
    """A lognormal factor with mean 1 and the standard deviation `ratio`."""
    sigma_squared = math.log1p(ratio * ratio)
    return math.exp(random.gauss(0.0, math.sqrt(sigma_squared)) - sigma_squared / 2)


def stalled_end_s(start_s: float, work_s: float, *, every_s: float, stall_s: float) -> float:
    """The end of work that stands still for `stall_s` from each multiple of `every_s` on.

    `stall_s` must be below `every_s`. The first stop is at `every_s`.
    """
    stop = math.floor(start_s / every_s)
    if stop >= 1 and start_s < stop * every_s + stall_s:
        start_s = stop * every_s + stall_s
    left_s = work_s
    while start_s + left_s > (stop + 1) * every_s:
        stop += 1
        left_s -= stop * every_s - start_s
        start_s = stop * every_s + stall_s
    return start_s + left_s
