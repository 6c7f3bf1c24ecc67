"""`worker`: this process becomes a worker of a run on another machine."""

import os
import sys

from harness.errors import ConfigError

_LAST_PORT = 65535


def become_worker(master: str, wait_s: float) -> int:
    """Replace this process by a load worker, so that signals and exit code are its own.

    ConfigError for an address that is none.
    """
    host, _, port = master.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= _LAST_PORT:
        raise ConfigError(f"--master {master}: must be HOST:PORT, as load.master_bind of the run")
    if not 0 < wait_s < float("inf"):
        raise ConfigError(f"--wait-s {wait_s:g}: must be a number of seconds > 0")
    sys.stdout.flush()
    command = [sys.executable, "-m", "harness.load.worker", master, "--wait-s", str(wait_s)]
    os.execv(sys.executable, command)  # noqa: S606 - our own interpreter and module, no shell
