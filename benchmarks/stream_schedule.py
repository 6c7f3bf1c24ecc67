"""The schedule of the reference server: which event is due next, and its send.

All streams have the same gap between tokens, so the next tokens of all streams fall due in the
order in which their last ones did: a plain first-in first-out queue is exactly sorted, needs no
time wheel and costs nothing per event. Only first tokens (due by arrival stamps, which epoll does
not hand out in order) go through a small heap.
Nothing here parses or formats: the bytes are ready, the log is appended to.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from stream_connection import Connection
from stream_log import OutcomeCode, StreamLog

_SENDS_A_TURN = 64  # then the caller looks for requests, even if the server is behind


@dataclass(slots=True, kw_only=True, eq=False)
class Stream:
    """One answer. Token k is `chunks[k]`, the last one (`last_k`) is `last`, then comes `tail`."""

    connection: Connection
    row: int
    chunks: list[bytes]
    last_k: int
    last: bytes
    tail: bytes
    first_s: float
    due_s: float = 0.0
    k: int = 0


class Schedule:
    """The streams under way, in order of their next due time.

    `on_complete` gets the connection of each answer that is complete.
    """

    def __init__(
        self, log: StreamLog, *, tokens_per_s: float, on_complete: Callable[[Connection], None]
    ) -> None:
        self._log = log
        self._gap_s = 1.0 / tokens_per_s
        self._on_complete = on_complete
        self._firsts: list[tuple[float, int, Stream]] = []
        self._nexts: deque[Stream] = deque()

    def add(self, stream: Stream) -> None:
        """Take in a stream whose first token is due at `stream.first_s`."""
        stream.due_s = stream.first_s
        heappush(self._firsts, (stream.first_s, stream.row, stream))

    def send_due(self) -> float:
        """Send what is due; returns when the next event is due, 0.0 if more may be due already."""
        firsts, nexts, monotonic = self._firsts, self._nexts, time.monotonic
        gap_s, note = self._gap_s, self._log.add_event
        for _ in range(_SENDS_A_TURN):
            is_first = bool(firsts) and (not nexts or firsts[0][0] < nexts[0].due_s)
            if not is_first and not nexts:
                return math.inf
            stream = firsts[0][2] if is_first else nexts[0]
            due_s, k, sent_s = stream.due_s, stream.k, monotonic()
            if due_s > sent_s:
                return due_s
            if is_first:
                heappop(firsts)
            else:
                nexts.popleft()
            is_last = k == stream.last_k
            if not stream.connection.put(stream.last if is_last else stream.chunks[k]):
                self._end(stream, OutcomeCode.DISCONNECTED)
                continue
            note(stream.row, k, due_s, sent_s)
            if is_last:
                self._send_tail(stream)
            else:
                stream.k = k + 1
                stream.due_s = stream.first_s + stream.k * gap_s
                nexts.append(stream)
        return 0.0

    def _send_tail(self, stream: Stream) -> None:
        sent_s = time.monotonic()
        if not stream.connection.put(stream.tail):
            self._end(stream, OutcomeCode.DISCONNECTED)
            return
        self._log.add_event(stream.row, stream.last_k + 1, stream.due_s, sent_s)
        self._end(stream, OutcomeCode.COMPLETE)
        self._on_complete(stream.connection)

    def _end(self, stream: Stream, outcome: OutcomeCode) -> None:
        self._log.end_request(stream.row, outcome, blocked=stream.connection.blocked)
