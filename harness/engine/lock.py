"""The machine-wide lock: two engines measured at once on one machine would measure each other."""

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.errors import ConfigError

# Fixed, not the user's TMPDIR: all users of a machine must meet at the same file.
LOCK_PATH = Path("/tmp/bakeoff-engine.lock")  # noqa: S108
POLL_S = 0.2


def _open_shared(path: Path) -> int:
    """Open the lock file of whichever user made it first.

    Without O_CREAT where it exists: kernels with fs.protected_regular refuse to "create" a file
    of another user in a sticky folder.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(10):
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(fd, 0o666)  # past the umask
                return fd
    raise FileNotFoundError(path)


def _holder(fd: int) -> str:
    try:
        owner = json.loads(os.pread(fd, 4096, 0))
        return f"process {int(owner['pid'])} ({owner['what']})"
    except (OSError, ValueError, LookupError, TypeError):
        return "another bakeoff"


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire(fd: int, wait_s: float, progress: Callable[[str], None]) -> None:
    deadline_s = time.monotonic() + wait_s
    told = ""
    while not _try_lock(fd):
        holder = _holder(fd)
        if time.monotonic() >= deadline_s:
            raise ConfigError(
                f"the machine is in use by {holder} after {wait_s:g} s of waiting; "
                "let it end, or end it: two engines on one machine disturb each other"
            )
        if holder != told:
            progress(f"waiting up to {wait_s:g} s for {holder} to free the machine")
            told = holder
        time.sleep(POLL_S)


@contextlib.contextmanager
def machine_lock(
    what: str,
    *,
    wait_s: float,
    progress: Callable[[str], None],
    path: Path = LOCK_PATH,
) -> Iterator[int]:
    """Hold the machine for one engine; gives the lock's file descriptor.

    Handed to the engine's keeper (`EngineProcess(keep_fds=...)`), the descriptor keeps the
    machine locked until the last of the engine's processes is gone, even if we are killed.
    `what` is told to those who wait. ConfigError after `wait_s`, naming who holds it.
    """
    try:
        fd = _open_shared(path)
    except OSError as error:
        raise ConfigError(f"{path}: the machine lock: {error.strerror or error}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConfigError(f"{path}: the machine lock is not a plain file; remove it")
        _acquire(fd, wait_s, progress)
        owner = json.dumps({"pid": os.getpid(), "what": what}).encode()
        os.ftruncate(fd, 0)
        os.pwrite(fd, owner, 0)
        yield fd
    finally:
        # Closed, not unlocked: LOCK_UN would also free the keeper's share of it.
        os.close(fd)
