"""Which core the client gets and which the reference server: never the same one."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ConfigError

_TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """Logical cores. `are_siblings`: they are two threads of one physical core."""

    client: int
    server: int
    are_siblings: bool = False


def choose_cores(client: int | None, server: int | None) -> Cores:
    """The cores asked for, or the first allowed one and the last that is not its sibling.

    ConfigError on a machine that cannot keep the two apart, or that is not Linux.
    """
    if sys.platform != "linux":
        raise ConfigError("calibrate: needs Linux, whose kernel stamps what arrives")
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:  # noqa: PLR2004 - one for each side
        raise ConfigError(
            f"calibrate: needs two cores and may use {len(allowed)} (core {allowed[0]}): client "
            "and server on one core would measure each other"
        )
    for name, cpu in (("--client-cpu", client), ("--server-cpu", server)):
        if cpu is not None and cpu not in allowed:
            raise ConfigError(f"{name}={cpu}: must be one of {', '.join(map(str, allowed))}")
    first = next(cpu for cpu in allowed if cpu != server) if client is None else client
    others = [cpu for cpu in reversed(allowed) if cpu != first]
    apart = [cpu for cpu in others if cpu not in _siblings(first)]
    second = (apart or others)[0] if server is None else server
    if first == second:
        raise ConfigError(f"--client-cpu={first} --server-cpu={second}: must be two cores")
    return Cores(client=first, server=second, are_siblings=second in _siblings(first))


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """Keep this process, and what it starts, on one core for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _siblings(cpu: int) -> set[int]:
    """The logical cores of the physical core that `cpu` is on, itself included."""
    path = _TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        parts = path.read_text(encoding="ascii").strip().split(",")
    except OSError:
        return {cpu}
    ends = [[int(end) for end in part.split("-")] for part in parts]
    return {number for end in ends for number in range(end[0], end[-1] + 1)}
