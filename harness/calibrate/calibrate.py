"""The whole calibration of a machine: every route, one load after another."""

from collections.abc import Callable
from datetime import UTC, datetime

from harness.calibrate.capacity import RouteResult, conclude
from harness.calibrate.cores import Cores
from harness.calibrate.ladder import Ladder
from harness.calibrate.measure import measure_point
from harness.calibrate.point import Load, Point
from harness.calibrate.routes import Route


def calibrate_route(
    route: Route,
    ladder: Ladder,
    cores: Cores,
    *,
    on_load: Callable[[Load], None] = lambda _load: None,
    on_point: Callable[[Point], None] = lambda _point: None,
    measure: Callable[[Route, Load, Cores], Point] = measure_point,
) -> RouteResult:
    """Measure loads of a route until the client no longer keeps up, and sum them up.

    `on_load`, `on_point`: told before and after each load. `measure`: how a load is played.
    """
    points: list[Point] = []
    while (load := ladder.next_load(points)) is not None:
        on_load(load)
        points.append(measure(route, load, cores))
        on_point(points[-1])
    return conclude(route.name, points, measured_at=_now())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
