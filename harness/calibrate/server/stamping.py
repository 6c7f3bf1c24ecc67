"""Waits until the kernel really stamps: it is told to at once, and begins a little later."""

import socket
import time

from harness.calibrate.server.connection import SO_TIMESTAMPNS

_PAUSE_S = 1e-3


def await_stamps(timeout_s: float = 2.0) -> bool:
    """Whether a datagram to ourselves came with a stamp within the time.

    The kernel switches stamping on in a deferred task when the first socket asks for it, and off
    again with the last; on a busy machine requests can come in between. Whoever calls this holds
    a socket that asks for stamps.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(timeout_s)
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            sock.sendto(b"?", sock.getsockname())
            _, ancillary, _, _ = sock.recvmsg(1, 64)
            if ancillary:
                return True
            time.sleep(_PAUSE_S)
    return False
