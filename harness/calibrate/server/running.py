"""The reference server as a child process, from its start to its log."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from harness.errors import EngineDiedError, NotReadyError

_END_S = 120.0  # writing the log of some minutes


@contextmanager
def running_server(log: Path, *options: str) -> Iterator[str]:
    """Start the reference server with these options of its command line; gives its base URL.

    Ends it on leaving, which writes the log. NotReadyError if it does not start,
    EngineDiedError if it does not end well.
    """
    argv = [sys.executable, "-m", "harness.calibrate.server", "--parent", str(os.getpid())]
    argv += ["--log", str(log), *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            said = server.stdout.readline().removeprefix("listening on ").strip()
            if not urlsplit(said).port:
                raise NotReadyError(f"the reference server did not start: {' '.join(argv)}")
            yield said
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.communicate()
    if server.returncode != 0:
        raise EngineDiedError(f"the reference server ended with code {server.returncode}")
