"""Our end of the two pipes to a keeper (`keeper.py`), which holds an engine for us."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from harness.errors import ConfigError

KEEPER = Path(__file__).with_name("keeper.py")
AFTER_S = 10.0  # what the keeper gives a command that takes a container away (keeper.py)
KILL_S = 2.0  # what the keeper, or we in its place, may take for rounds of SIGKILL


class KeeperLink:
    """A running keeper: tell it lines, read its events. Closing the link ends the engine."""

    def __init__(self, spec: Mapping[str, Any], *, log_path: Path, keep_fds: Sequence[int]) -> None:
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            with log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(KEEPER)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=tuple(keep_fds),
                    bufsize=0,
                )
        except OSError as error:
            raise ConfigError(f"{log_path}: {error.strerror or error}") from error
        self.pid = self._process.pid
        self._buffer = b""
        self._is_open = True
        self.tell(json.dumps(spec))

    def tell(self, line: str) -> None:
        """Send one line; a keeper that is gone is seen by the next `read`."""
        assert self._process.stdin is not None
        rest = line.encode() + b"\n"
        try:
            while rest:
                rest = rest[self._process.stdin.write(rest) :]
        except OSError:
            return

    def read(self, wait_s: float) -> list[dict[str, Any]]:
        """The events that came, waiting up to `wait_s` for a first one.

        An event `lost` is added when the keeper's output ends, in order or not.
        """
        if not self._is_open:
            return []
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        events: list[dict[str, Any]] = []
        while self._is_open and select.select([fd], [], [], 0.0 if events else wait_s)[0]:
            data = os.read(fd, 65536)
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            events += [json.loads(line) for line in lines]
            if not data:
                self._is_open = False
                events.append({"event": "lost"})
        return events

    def close(self) -> None:
        """Close both pipes; a keeper still at work goes on killing by itself."""
        self._is_open = False
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return


def kill_tree(root: psutil.Process | None) -> list[int]:
    """End an engine whose keeper was killed, as far as it can still be found; pids left."""
    if root is None:
        return []
    try:
        found = [*root.children(recursive=True), root]
    except psutil.Error:
        return []
    for process in found:
        try:
            process.kill()  # psutil refuses a pid that has gone to another process
        except psutil.Error:
            continue
    _, alive = psutil.wait_procs(found, timeout=KILL_S)
    return [p.pid for p in alive]
