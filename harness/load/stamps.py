"""Kernel time stamps on received bytes: when they came, not when we got round to reading them.

`SO_TIMESTAMPNS` stamps with the wall clock. What is kept is `mono_now - (real_now - stamp)`, the
arrival on the monotonic clock, so a step of the wall clock can spoil at most one read, and that
one shows as a negative or huge lateness and falls back to our own clock.
"""

import struct
from collections.abc import Iterable
from socket import SOL_SOCKET
from time import monotonic
from time import time as wall_clock  # noqa: TID251 - the kernel stamps with the wall clock
from typing import Any, NamedTuple

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; also the type of the control message
_TIMESPEC = struct.Struct("@qq")
ANCILLARY_BYTES = 64  # one timespec control message needs 32
_MAX_LATE_S = 60.0


class Arrival(NamedTuple):
    """When bytes arrived (monotonic), how late we read them, and whether the kernel said so."""

    t_s: float
    late_s: float
    is_kernel: bool


def enable(sock: Any) -> bool:
    """Ask the kernel to stamp what this socket receives; False where it cannot."""
    try:
        sock.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def arrival(ancillary: Iterable[tuple[int, int, bytes]]) -> Arrival:
    """The arrival of the bytes just read, from the control messages of `recvmsg`.

    When several segments are read at once the stamp is the last one's (tcp_recvmsg).
    """
    mono_now = monotonic()
    for level, kind, data in ancillary:
        if level == SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            late_s = wall_clock() - seconds - nanoseconds * 1e-9
            if 0.0 <= late_s < _MAX_LATE_S:
                return Arrival(mono_now - late_s, late_s, is_kernel=True)
    return Arrival(mono_now, 0.0, is_kernel=False)


def wall_now() -> float:
    """Seconds since the epoch, for `started_at` only."""
    return wall_clock()
