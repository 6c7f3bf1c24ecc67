"""The limit on open files: one connection is one file, and a low limit caps the load in silence."""

import resource

from harness.errors import ConfigError

SPARE_FILES = 64  # the journal, the calls, Python's own


def raise_limit() -> int:
    """Raise this process's soft limit to the hard one; returns what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def check_connections(connections: int) -> None:
    """ConfigError if so many connections at once cannot be open, whatever is raised."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and connections + SPARE_FILES > hard:
        raise ConfigError(
            f"open-file limit {hard} is too low for {connections} connections; raise it with: "
            f"ulimit -Hn {connections + SPARE_FILES}"
        )
