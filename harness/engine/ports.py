"""TCP ports on the loopback interface: a free one to serve on, and who holds a taken one."""

import errno
import random
import socket
from pathlib import Path

import psutil

from harness.errors import ConfigError

LOOPBACK = "127.0.0.1"
LOWEST_PORT = 18_000
TRIES = 200
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _first_ephemeral_port() -> int:
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768  # the Linux default


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(1)
        except OSError as error:
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise
            return False
    return True


def free_port() -> int:
    """A port that nothing listens on, below the ephemeral range.

    From within that range an outgoing connection could take the port before the engine binds
    it, and a probe of the still closed port could connect to itself.
    """
    top = _first_ephemeral_port()
    low = min(LOWEST_PORT, top - 1000)
    rng = random.Random()  # unseeded: two runs that start together must not meet
    for _ in range(TRIES):
        port = rng.randrange(max(low, 1024), top)
        if is_free(port):
            return port
    raise ConfigError(f"no free port found on {LOOPBACK} in {TRIES} tries; give one: launch.port=")


def listeners(port: int) -> list[int | None]:
    """Process ids that listen on the port; None for one that this user may not see."""
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return []
    listening = [c for c in connections if c.status == psutil.CONN_LISTEN]
    found = {c.pid for c in listening if getattr(c.laddr, "port", None) == port}
    return sorted(found, key=lambda pid: (pid is None, pid or 0))


def describe(pids: list[int | None]) -> str:
    """Who they are in words, such as `process 123 (nginx)`; empty if nobody can tell."""
    words = []
    for pid in pids:
        if pid is None:
            words.append("a process of another user")
            continue
        try:
            words.append(f"process {pid} ({psutil.Process(pid).name()})")
        except psutil.Error:
            words.append(f"process {pid}")
    return ", ".join(words)


def choose_port(wanted: int | None) -> int:
    """The wanted port, or a free one if None; ConfigError that says who holds the wanted one."""
    if wanted is None:
        return free_port()
    if is_free(wanted):
        return wanted
    who = describe(listeners(wanted))
    held = f"in use by {who}" if who else "in use or not permitted"
    raise ConfigError(
        f"launch.port={wanted}: {held}; choose another port, "
        "or leave launch.port out for a free one"
    )
