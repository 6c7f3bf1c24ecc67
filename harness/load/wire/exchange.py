"""One request and its answer on a connection, from `begin` until `finish`."""

from typing import Any

from gevent.hub import Waiter


class Exchange:
    """What the io callback and the waiting greenlet share; lives as long as one try of a request.

    `waiter`: woken once, at the end. `got_bytes`: something of the answer came. `complete`: all of
    it did, by its HTTP framing. `reason`, `end_s`: why and when it ended; empty while it runs.
    `status`: HTTP status, 0 before the head came. `is_framed`: the head says how long the body is,
    so that it cannot just end. `retry_after`: the header, or None. `kept`: all bytes as read, for
    whoever needs the answer; None: they are not kept. `last`, `last_s`: the last read and its
    stamp. `unstamped_reads`: reads that the kernel did not stamp.
    """

    __slots__ = (
        "complete",
        "end_s",
        "got_bytes",
        "index",
        "is_framed",
        "kept",
        "last",
        "last_s",
        "reason",
        "retry_after",
        "status",
        "unstamped_reads",
        "waiter",
    )

    def __init__(self, index: int, *, keep: bool = False) -> None:
        self.index = index
        self.waiter: Any = Waiter()
        self.got_bytes = False
        self.complete = False
        self.reason = ""
        self.status = 0
        self.end_s = 0.0
        self.is_framed = False
        self.retry_after: bytes | None = None
        self.kept: list[bytes] | None = [] if keep else None
        self.last = b""
        self.last_s = 0.0
        self.unstamped_reads = 0

    @property
    def is_dead(self) -> bool:
        """The connection died before any byte of the answer."""
        return not self.got_bytes and (self.reason == "eof" or self.reason.startswith("reset"))
