"""What the load client of this machine was found to carry, from a run's facts.

`bakeoff calibrate` measures it; a run keeps what was known when it was played, by route.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.analysis.facts import fact, setting
from harness.types import RunInfo, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One route's figures.

    `capacity_tokens_per_s`: of one worker, with an error within 1 ms; `is_lower_bound`: no load
    failed, so that it may carry more. `ttft_error_p99_s`, `gap_error_p99_s`: its own error up to
    there. `cpu_us_per_token`: microseconds of client CPU. `measured_at`: when, ISO.
    """

    route: str
    capacity_tokens_per_s: float
    is_lower_bound: bool = False
    ttft_error_p99_s: float | None = None
    gap_error_p99_s: float | None = None
    cpu_us_per_token: float | None = None
    measured_at: str | None = None


def route_of(info: RunInfo) -> str:
    """How the run's calls travelled: `grpc`, `tls` or `http`."""
    wire = info.capabilities.wire if info.capabilities else Wire.HTTP
    return wire.route(str(setting(info, "launch.base_url") or ""))


def calibration_of(info: RunInfo) -> Calibration | None:
    """The calibration of the run's own route; None where none was known."""
    route, known = route_of(info), fact(info, "calibration")
    if not isinstance(known, Mapping):
        return None
    given = {str(key).lower(): value for key, value in known.items()}.get(route)
    capacity = _number(given, "capacity_tokens_per_s")
    if not isinstance(given, Mapping) or capacity is None or capacity <= 0:
        return None
    measured_at = given.get("measured_at")
    return Calibration(
        route=route,
        capacity_tokens_per_s=capacity,
        is_lower_bound=bool(given.get("is_lower_bound")),
        ttft_error_p99_s=_number(given, "ttft_error_p99_s"),
        gap_error_p99_s=_number(given, "gap_error_p99_s"),
        cpu_us_per_token=_number(given, "cpu_us_per_token"),
        measured_at=None if measured_at is None else str(measured_at),
    )


def _number(given: Any, key: str) -> float | None:
    value = given.get(key) if isinstance(given, Mapping) else None
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_number and value is not None else None
