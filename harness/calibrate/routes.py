"""The ways to a server that can be calibrated; a new one is a row of the table."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harness.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How the reference server is started for a route, and what a run against it is told."""

    name: str
    server: tuple[str, ...] = ()
    run: tuple[str, ...] = ("engine=openai",)


ROUTES: Mapping[str, Route] = MappingProxyType(
    {
        route.name: route
        for route in (
            Route(name="http"),
            Route(name="tls", server=("--tls",), run=("engine=openai", "launch.tls_verify=false")),
            Route(name="grpc", server=("--grpc",), run=("engine=deepspeed_mii",)),
        )
    }
)


def choose_routes(names: str) -> tuple[Route, ...]:
    """The routes of a list such as `http,tls`; of an empty one all; ConfigError for an unknown."""
    if not names:
        return tuple(ROUTES.values())
    chosen = []
    for name in dict.fromkeys(part.strip() for part in names.split(",")):
        route = ROUTES.get(name)
        if route is None:
            raise ConfigError(f"--routes={names}: {name!r} is not one of {', '.join(ROUTES)}")
        chosen.append(route)
    return tuple(chosen)
