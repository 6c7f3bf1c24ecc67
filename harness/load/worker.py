"""A worker's process: of the master's own machine, or of another one (`bakeoff worker`).

    python -m harness.load.worker HOST:PORT [--place N --parent PID] [--wait-s S]

`--place`, `--parent`: its number and the process that starts it, its master; such a worker says
nothing and dies with its master. Without them a worker tells what it does, ends with its master,
and with 130 when it is interrupted, also while it still imports what it needs.
"""

import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.stderr.write("bakeoff: interrupted\n")
    sys.stderr.flush()
    os._exit(_INTERRUPTED)


def main() -> int:
    """Work for the master until it says that all is played; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    from harness.load.distributed.worker_process import work  # noqa: PLC0415 - takes a second

    return work()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Locust and gevent have nothing left that is worth waiting for
