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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from harness.calibrate.server.log import OutcomeCode, StreamLog

_SENDS_A_TURN = 64  # then the caller looks for requests, even if the server is behind


class Sink(Protocol):
    """Where an answer goes: a connection, or one of several streams on it.

    `stamp_s`, `is_kernel`: when the request arrived, and whether the kernel says so. `is_busy`:
    an answer is under way. `blocked`: sends that were not taken at once.
    """

    stamp_s: float
    is_kernel: bool
    is_busy: bool
    blocked: int

    def put(self, data: bytes) -> bool:
        """Send now or later, in order; False if the client is gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The bytes of one answer, ready to be sent.

    Token k is `chunks[k]`, the last one (`last_k`) is `last`, then comes `tail`. `index`: the
    client's number for its request. `on_complete`: called when all is sent.
    """

    index: int | None
    chunks: Sequence[bytes]
    last_k: int
    last: bytes
    tail: bytes
    on_complete: Callable[[], object]


@dataclass(slots=True, kw_only=True, eq=False)
class _Stream:
    sink: Sink
    answer: Answer
    row: int
    chunks: Sequence[bytes]
    last_k: int
    first_s: float
    due_s: float
    k: int = 0


class Schedule:
    """The streams under way, in order of their next due time; each send goes into the log."""

    def __init__(self, log: StreamLog, *, ttft_s: float, tokens_per_s: float) -> None:
        self._log = log
        self._ttft_s = ttft_s
        self._gap_s = 1.0 / tokens_per_s
        self._firsts: list[tuple[float, int, _Stream]] = []
        self._nexts: deque[_Stream] = deque()

    def begin(self, sink: Sink, answer: Answer) -> None:
        """Answer the request whose last bytes have just come to this sink."""
        row = self._log.add_request(
            index=answer.index,
            arrival_s=sink.stamp_s,
            is_kernel=sink.is_kernel,
            tokens=answer.last_k + 1,
        )
        sink.is_busy = True
        sink.blocked = 0
        first_s = sink.stamp_s + self._ttft_s
        stream = _Stream(
            sink=sink,
            answer=answer,
            row=row,
            chunks=answer.chunks,
            last_k=answer.last_k,
            first_s=first_s,
            due_s=first_s,
        )
        heappush(self._firsts, (first_s, row, stream))

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
            if not stream.sink.put(stream.answer.last if is_last else stream.chunks[k]):
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

    def _send_tail(self, stream: _Stream) -> None:
        sent_s = time.monotonic()
        if not stream.sink.put(stream.answer.tail):
            self._end(stream, OutcomeCode.DISCONNECTED)
            return
        self._log.add_event(stream.row, stream.last_k + 1, stream.due_s, sent_s)
        self._end(stream, OutcomeCode.COMPLETE)
        stream.answer.on_complete()

    def _end(self, stream: _Stream, outcome: OutcomeCode) -> None:
        self._log.end_request(stream.row, outcome, blocked=stream.sink.blocked)
