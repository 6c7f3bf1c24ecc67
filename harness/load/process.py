"""What every process of the load does first: child, master, worker."""

import os
import signal
from ctypes import CDLL
from socket import AF_INET, SOCK_STREAM
from typing import Any

import gevent.monkey

from harness.load.wire import stamps
from harness.load.wire.open_files import raise_limit

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int | None = None) -> bool:
    """Have the kernel kill this process when its parent is gone; False if it is gone already.

    `parent`: its process id, where it was told; else that of now.
    """
    parent = os.getppid() if parent is None else parent
    CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def primed() -> Any:
    """Raise the limit of open files and have the kernel stamp; hold what this gives to the end.

    The kernel begins to stamp lazily, when the first socket asks for it: one is held open from
    the start.
    """
    raise_limit()
    primer = gevent.monkey.get_original("socket", "socket")(AF_INET, SOCK_STREAM)
    stamps.enable(primer)
    return primer
