"""The ways to a server that can be calibrated; a new one is a row of the table."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harness.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How the reference server is started for a route, and what a run against it is told.

    `absent`: why it cannot be calibrated; empty if it can.
    """

    name: str
    server: tuple[str, ...] = ()
    run: tuple[str, ...] = ("engine=openai",)
    absent: str = ""


ROUTES: Mapping[str, Route] = MappingProxyType(
    {
        route.name: route
        for route in (
            Route(name="http"),
            Route(name="tls", server=("--tls",), run=("engine=openai", "launch.tls_verify=false")),
            Route(
                name="grpc",
                server=("--grpc",),
                run=("engine=deepspeed_mii",),
                absent="no engine of this version of bakeoff is measured over gRPC",
            ),
        )
    }
)


def choose_routes(names: str) -> tuple[Route, ...]:
    """The routes of a list such as `http,tls`, or of an empty one all that there are.

    ConfigError for one that is not known or cannot be calibrated.
    """
    if not names:
        return tuple(route for route in ROUTES.values() if not route.absent)
    chosen = []
    for name in dict.fromkeys(part.strip() for part in names.split(",")):
        route = ROUTES.get(name)
        if route is None:
            raise ConfigError(f"--routes={names}: {name!r} is not one of {', '.join(ROUTES)}")
        if route.absent:
            raise ConfigError(f"--routes={names}: {name} cannot be calibrated: {route.absent}")
        chosen.append(route)
    return tuple(chosen)
