"""Failures that cross a process: an exit code and a sentence there, an error of ours here."""

from harness.errors import (
    BakeoffError,
    ConfigError,
    InterruptedRunError,
    InvalidRunError,
    StoreWriteError,
)

_KINDS = {
    kind.exit_code: kind
    for kind in (ConfigError, InterruptedRunError, InvalidRunError, StoreWriteError)
}


def raised(exit_code: int, message: str) -> BakeoffError:
    """The error that another process has ended with."""
    return _KINDS.get(exit_code, BakeoffError)(message)
