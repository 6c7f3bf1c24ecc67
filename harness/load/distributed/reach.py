"""Whether a worker's machine reaches the server at all, before its whole share fails."""

from socket import create_connection, gethostname

from harness.errors import ConfigError

_CONNECT_S = 5.0


def check_reachable(host: str, port: int) -> None:
    """ConfigError if the server to be loaded cannot be reached from this machine."""
    try:
        create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"launch.base_url: a worker on {gethostname()} cannot reach {host}:{port} "
            f"({error.strerror or error}); give an address that every worker can reach"
        ) from error
