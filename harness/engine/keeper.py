"""The keeper: a small process between bakeoff and an engine that leaves nothing behind.

Started by path with a plain Python (`-I -S`), never imported: it imports nothing of ours. It makes
itself the reaper of all orphans below it, so that workers in sessions of their own are found too,
and kills every descendant when its standard input closes, as it does if bakeoff is killed.

Standard input: one JSON line {argv, env, cwd, grace_s, kill_s, after}, then lines `stop GRACE_S`.
`after`: a command that takes away what is not below this process, such as a container.
Standard output, JSON lines: {event: started, pid} or {event: failed, error}; {event: exit, code,
signal, at_s} when the engine itself ends (`at_s` on the system's monotonic clock); {event: done,
left: [pids]} as the last word. Standard error is the engine's log. Exit code 1 if any are left.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
LEFTOVER_GRACE_S = 1.0  # what orphaned workers get between SIGTERM and SIGKILL
AFTER_S = 10.0  # what that command may take
POLL_S = 0.5  # how soon a changed parent is seen when something else holds our input open
SWEEP_S = 0.02  # pause between two rounds of SIGKILL


def adopt_orphans() -> bool:
    """Become the reaper of every orphan below this process; False where the system cannot."""
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def _parent_of(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (no pathlib under -S: slow)
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # A zombie is dead already: it only waits for its parent, which may be one of those we kill.
    return None if fields[0] in {b"Z", b"X"} else int(fields[1])


def descendants(root: int) -> list[int]:
    """Live processes below `root`, whatever session they are in; read from /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (parent := _parent_of(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def send(pids: list[int], number: int) -> None:
    """Send a signal to each process that is still there."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


class Keeper:
    """One engine and everything that it started."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.pid = 0
        self.is_running = False
        self._input = b""
        self._wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        # Handlers, not SIG_IGN: an ignored signal would stay ignored in the engine.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._parent = os.getppid()

    def start(self) -> bool:
        """Start the engine in a session of its own; False, and said so, if it cannot be."""
        try:
            self._process = subprocess.Popen(  # kept: its finaliser would take the exit status
                self.spec["argv"],
                env=self.spec["env"],
                cwd=self.spec["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            say(event="failed", error=getattr(error, "strerror", None) or str(error))
            return False
        self.pid, self.is_running = self._process.pid, True
        say(event="started", pid=self.pid)
        return True

    def reap(self) -> None:
        """Collect every child that has ended, adopted ones too; report the engine's end."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if ended[0] == self.pid and self.is_running:
                    self.is_running = False
                    code = os.waitstatus_to_exitcode(ended[1])
                    died_of = -code if code < 0 else None
                    exit_code = code if code >= 0 else None
                    say(event="exit", code=exit_code, signal=died_of, at_s=time.monotonic())

    def wait(self) -> float | None:
        """Wait until told to stop (the grace in seconds) or until the engine ends (None)."""
        while True:
            self.reap()
            if not self.is_running:
                return None
            if 0 in self._woken(0, wait_s=POLL_S) and (grace_s := self._command()) is not None:
                return grace_s
            if os.getppid() != self._parent:
                return float(self.spec["grace_s"])

    def _woken(self, *inputs: int, wait_s: float) -> list[int]:
        """Which inputs can be read; a signal ends the wait too."""
        ready, _, _ = select.select([*inputs, self._wake_read], [], [], wait_s)
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        return ready

    def _command(self) -> float | None:
        data = os.read(0, 4096)
        if not data:
            return float(self.spec["grace_s"])
        self._input += data
        word, _, rest = self._input.partition(b"\n")[0].partition(b" ")
        return float(rest) if b"\n" in self._input and word == b"stop" else None

    def end(self, grace_s: float) -> list[int]:
        """SIGTERM, a grace, then SIGKILL to all until none is left; the pids that remain."""
        asked_s = time.monotonic()
        if self.is_running:
            send([self.pid], signal.SIGTERM)
            self._wait_for_end(asked_s + grace_s, engine_only=True)
        if not self.is_running:
            send(descendants(os.getpid()), signal.SIGTERM)
            left_s = min(LEFTOVER_GRACE_S, max(0.0, asked_s + grace_s - time.monotonic()))
            self._wait_for_end(time.monotonic() + left_s, engine_only=False)
        deadline_s = time.monotonic() + float(self.spec["kill_s"])
        while (left := descendants(os.getpid())) and time.monotonic() < deadline_s:
            send(left, signal.SIGKILL)
            time.sleep(SWEEP_S)
            self.reap()
        self.reap()
        self._tidy()
        return left

    def _tidy(self) -> None:
        """Run the command that takes away what is elsewhere; its words go to the log."""
        if self.spec.get("after"):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    self.spec["after"],
                    env=self.spec["env"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=AFTER_S,
                    check=False,
                )

    def _wait_for_end(self, deadline_s: float, *, engine_only: bool) -> None:
        is_watched = True
        while (left_s := deadline_s - time.monotonic()) > 0:
            self.reap()
            if not self.is_running and (engine_only or not descendants(os.getpid())):
                return
            if is_watched and os.getppid() != self._parent:  # killed while it waited for us
                is_watched = False
                deadline_s = min(deadline_s, time.monotonic() + float(self.spec["grace_s"]))
            self._woken(wait_s=min(left_s, 0.1))


def say(**event: object) -> None:
    """Report one event; a parent that has gone is no reason to stop cleaning up."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")


def read_spec() -> dict[str, Any] | None:
    """Read the first line of standard input byte-exactly, so that commands after it stay."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return None
        line += byte
    return dict(json.loads(line))


def main() -> int:
    """Keep one engine from its start to its complete end."""
    adopt_orphans()
    spec = read_spec()
    if spec is None:
        return 0
    keeper = Keeper(spec)
    if not keeper.start():
        return 0
    grace_s = keeper.wait()
    left = keeper.end(LEFTOVER_GRACE_S if grace_s is None else grace_s)
    say(event="done", left=left)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
