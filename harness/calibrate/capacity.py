"""What the points of a route add up to: how many tokens a second our client can be trusted with."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.calibrate.point import Finding, Point


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteResult:
    """What was found for one route.

    `capacity_tokens_per_s`: the highest offered rate whose errors stayed within 1 ms while 99 %
    of the tokens were taken; None if no load did. `is_lower_bound`: no higher load failed because
    of the client, so that it can be trusted with at least this. `ttft_error_p99_s`,
    `gap_error_p99_s`: the largest of the good loads, without sign. `cpu_us_per_token`: at the
    capacity. `measured_at`: ISO 8601, UTC.
    """

    route: str
    measured_at: str
    points: tuple[Point, ...]
    capacity_tokens_per_s: float | None
    is_lower_bound: bool
    ttft_error_p99_s: float | None
    gap_error_p99_s: float | None
    cpu_us_per_token: float | None


def conclude(route: str, points: Sequence[Point], *, measured_at: str) -> RouteResult:
    """Sum up the points of a route."""
    good = [point for point in points if point.finding is Finding.GOOD]
    best = max(good, key=lambda point: point.offered_tokens_per_s, default=None)
    failed = [p for p in points if p.finding not in {Finding.GOOD, Finding.SERVER_LATE}]
    # By the rate asked for: a client that falls behind slows the offer down.
    is_bounded = best is not None and any(
        point.asked_tokens_per_s > best.asked_tokens_per_s for point in failed
    )
    return RouteResult(
        route=route,
        measured_at=measured_at,
        points=tuple(points),
        capacity_tokens_per_s=best.offered_tokens_per_s if best else None,
        is_lower_bound=best is not None and not is_bounded,
        ttft_error_p99_s=max((abs(p.ttft_error_p99_s) for p in good), default=None),
        gap_error_p99_s=max((abs(p.gap_error_p99_s) for p in good), default=None),
        cpu_us_per_token=best.cpu_us_per_token if best else None,
    )
