"""One load of a calibration: what was asked, how far the client was off, what that says of it."""

from dataclasses import dataclass
from enum import StrEnum

ERROR_LIMIT_S = 1e-3  # an error of a P99 above it is the client's own, not the engine's
TAKEN_MIN_RATIO = 0.99
LATE_LIMIT_S = 2e-3  # a reference server that is later than this is no reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`streams` at once, each of `tokens_per_s`, until `requests` answers of `tokens` are done."""

    streams: int
    tokens_per_s: float
    requests: int
    tokens: int

    @property
    def asked_tokens_per_s(self) -> float:
        """All streams together, while all of them run."""
        return self.streams * self.tokens_per_s


class Finding(StrEnum):
    """What a point says: the client kept up, how it did not, or nothing (the server was late)."""

    GOOD = "good"
    TOKENS_LOST = "tokens lost"
    TTFT_WRONG = "TTFT wrong"
    GAPS_WRONG = "gaps wrong"
    SERVER_LATE = "server late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured load; errors are the client's figure minus the server's, in seconds.

    `offered_tokens_per_s`: what the schedule sent over the whole load, pauses between answers
    included. `ttft_error_p99_s`, `gap_error_p99_s`: P99 of one side minus P99 of the other, order
    statistics of raw samples. `ttft_worst_error_s`: the largest error of one request, without
    sign. `taken_ratio`: tokens that the client has, of all that it asked for. `merged_ratio`:
    reads with several tokens, which share one stamp. `kernel_ratio`: requests stamped by the
    kernel throughout. `server_late_p99_s`: sent minus due, of all sends. `tries`: how often the
    load was played until it was good, or given up.
    """

    streams: int
    tokens_per_s: float
    offered_tokens_per_s: float
    requests: int
    failed: int
    ttft_error_p99_s: float
    gap_error_p99_s: float
    ttft_worst_error_s: float
    taken_ratio: float
    merged_ratio: float
    kernel_ratio: float
    cpu_us_per_token: float | None
    server_late_p99_s: float
    tries: int = 1

    @property
    def asked_tokens_per_s(self) -> float:
        """All streams together, while all of them run."""
        return self.streams * self.tokens_per_s

    @property
    def finding(self) -> Finding:
        """What this point says of the client."""
        if self.server_late_p99_s > LATE_LIMIT_S:
            return Finding.SERVER_LATE
        if self.taken_ratio < TAKEN_MIN_RATIO:
            return Finding.TOKENS_LOST
        if abs(self.ttft_error_p99_s) > ERROR_LIMIT_S:
            return Finding.TTFT_WRONG
        if abs(self.gap_error_p99_s) > ERROR_LIMIT_S:
            return Finding.GAPS_WRONG
        return Finding.GOOD
