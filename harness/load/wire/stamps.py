"""Kernel time stamps on received bytes: when they came, not when we got round to reading them.

`SO_TIMESTAMPNS` stamps with the wall clock. What is kept is `mono_now - (real_now - stamp)`, the
arrival on the monotonic clock, so a step of the wall clock can spoil at most one read, and that
one shows as a negative or huge lateness and falls back to our own clock.
"""

import struct
from collections.abc import Sequence
from socket import SOL_SOCKET
from time import monotonic
from time import time as wall_clock  # noqa: TID251 - the kernel stamps with the wall clock
from typing import Any

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; also the type of the control message
_TIMESPEC = struct.Struct("@qq")
_unpack = _TIMESPEC.unpack
ANCILLARY_BYTES = 64  # one timespec control message needs 32
_MAX_LATE_S = 60.0
Clocks = tuple[float, float]
_TORN_S = 20e-6  # neighbouring readings further apart than this were interrupted


def enable(sock: Any) -> bool:
    """Ask the kernel to stamp what this socket receives; False where it cannot."""
    try:
        sock.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def read_clocks() -> Clocks:
    """Both clocks at the same moment: monotonic, wall.

    A process that was interrupted between its two readings would take the pause for lateness, and
    what it reads for older than it is; so it reads them again.
    """
    now_s, wall_s = monotonic(), wall_clock()
    while (again_s := monotonic()) - now_s > _TORN_S:
        now_s, wall_s = again_s, wall_clock()
    return now_s, wall_s


def arrival(
    ancillary: Sequence[tuple[int, int, bytes]], clocks: Clocks | None = None
) -> tuple[float, float, bool]:
    """The arrival of bytes, from the control messages of their `recvmsg`.

    When several segments are read at once the stamp is the last one's (tcp_recvmsg).

    Args:
        ancillary: the control messages.
        clocks: read after the bytes were; several reads may share them. None: read now.

    Returns:
        When they arrived (monotonic), how late we read them, and whether the kernel said so. A
        plain tuple: a named one costs half a microsecond, and this is asked once a token.
    """
    now_s, wall_s = clocks or read_clocks()
    for level, kind, data in ancillary:
        if kind == SO_TIMESTAMPNS and level == SOL_SOCKET and len(data) == _TIMESPEC.size:
            seconds, nanoseconds = _unpack(data)
            late_s = wall_s - seconds - nanoseconds * 1e-9
            if 0.0 <= late_s < _MAX_LATE_S:
                return now_s - late_s, late_s, True
    return now_s, 0.0, False


def wall_now() -> float:
    """Seconds since the epoch, for `started_at` and dates in headers only."""
    return wall_clock()
