"""The reference server's log: when each event was due and when it was sent.

Columns grow in memory by appends while the server runs and are written as one file at its end:
one line of JSON (settings, summary, columns), then the columns' bytes one after another, in the
machine's byte order. All times are seconds of CLOCK_MONOTONIC, the clock of `time.monotonic`.
"""

import json
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

FORMAT = "stream-log-1"
_REQUEST_COLUMNS = {
    "index": "q",  # the client's number (X-Request-Index, X-Request-Id), or the running number
    "is_given": "b",  # 1: the index is the client's
    "arrival_s": "d",  # when the request's last bytes reached this machine's kernel
    "is_kernel": "b",  # 1: the arrival is the kernel's stamp; 0: our own reading
    "tokens": "q",
    "blocked": "q",  # sends that the socket did not take at once: the client did not read
    "outcome": "b",
}
_EVENT_COLUMNS = {
    "event_row": "q",  # row of the request in the columns above
    "event_k": "q",  # 0..tokens-1: a token; tokens: usage, [DONE] and the end
    "event_due_s": "d",
    "event_sent_s": "d",  # read just before the send
}


class OutcomeCode(IntEnum):
    """How a request ended."""

    RUNNING = 0
    COMPLETE = 1
    DISCONNECTED = 2


def order_statistic(values: Sequence[float], ratio: float) -> float:
    """The smallest value with at least `ratio` of all at or below it; NaN for no values.

    Inverse of the empirical distribution function: sorted x, element ceil(n * ratio).
    """
    if not values:
        return math.nan
    return sorted(values)[max(math.ceil(len(values) * ratio), 1) - 1]


class StreamLog:
    """Two tables as columns: requests in order of arrival at the server, events as sent."""

    def __init__(self) -> None:
        codes = {**_REQUEST_COLUMNS, **_EVENT_COLUMNS}
        self.columns: dict[str, array[Any]] = {name: array(code) for name, code in codes.items()}
        self._row, self._k, self._due, self._sent = (
            self.columns[name].append for name in _EVENT_COLUMNS
        )

    def add_request(
        self, *, index: int | None, arrival_s: float, is_kernel: bool, tokens: int
    ) -> int:
        """Note a request; returns its row."""
        columns = self.columns
        row = len(columns["index"])
        columns["index"].append(row if index is None else index)
        columns["is_given"].append(index is not None)
        columns["arrival_s"].append(arrival_s)
        columns["is_kernel"].append(is_kernel)
        columns["tokens"].append(tokens)
        columns["blocked"].append(0)
        columns["outcome"].append(OutcomeCode.RUNNING)
        return row

    def end_request(self, row: int, outcome: OutcomeCode, *, blocked: int) -> None:
        """Note how a request ended."""
        self.columns["outcome"][row] = outcome
        self.columns["blocked"][row] = blocked

    def add_event(self, row: int, k: int, due_s: float, sent_s: float) -> None:
        """Note one send of the request in `row`."""
        self._row(row)
        self._k(k)
        self._due(due_s)
        self._sent(sent_s)

    def summary(self) -> dict[str, Any]:
        """Counts, the rate while it sent, and the server's own lateness (sent - due)."""
        columns = self.columns
        sent, due = columns["event_sent_s"], columns["event_due_s"]
        late = sorted(s - d for s, d in zip(sent, due, strict=True))
        busy_s = max(sent) - min(sent) if sent else 0.0
        outcomes = columns["outcome"]
        return {
            "requests": len(outcomes),
            "complete": outcomes.count(OutcomeCode.COMPLETE),
            "disconnected": outcomes.count(OutcomeCode.DISCONNECTED),
            "kernel_stamped": columns["is_kernel"].count(1),
            "blocked_sends": sum(columns["blocked"]),
            "events": len(sent),
            "events_per_s": len(sent) / busy_s if busy_s else None,
            "late_p50_s": order_statistic(late, 0.5) if late else None,
            "late_p99_s": order_statistic(late, 0.99) if late else None,
            "late_max_s": late[-1] if late else None,
        }

    def write(self, path: Path, *, settings: Mapping[str, Any]) -> None:
        """Write the file; the settings (and CPU time) of the server go into its first line."""
        head = {
            "format": FORMAT,
            "settings": dict(settings),
            "summary": self.summary(),
            "columns": [[n, c.typecode, len(c)] for n, c in self.columns.items()],
        }
        with path.open("wb") as file:
            file.write(json.dumps(head).encode() + b"\n")
            for column in self.columns.values():
                column.tofile(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLog:
    """A log read back. `columns` as in `StreamLog`."""

    settings: dict[str, Any]
    summary: dict[str, Any]
    columns: dict[str, "array[Any]"]

    def token_times(self) -> tuple[list[list[float]], list[list[float]]]:
        """For each request row: when its tokens were due, and when they were sent."""
        tokens = self.columns["tokens"]
        due: list[list[float]] = [[] for _ in tokens]
        sent: list[list[float]] = [[] for _ in tokens]
        names = ("event_row", "event_k", "event_due_s", "event_sent_s")
        for row, k, due_s, sent_s in zip(*(self.columns[n] for n in names), strict=True):
            if k < tokens[row]:
                due[row].append(due_s)
                sent[row].append(sent_s)
        return due, sent


def read_log(path: Path) -> WrittenLog:
    """Read a log file; ValueError if it is not one or is cut off."""
    with path.open("rb") as file:
        head = json.loads(file.readline())
        if head.get("format") != FORMAT:
            raise ValueError(f"{path}: format={head.get('format')!r}: must be {FORMAT!r}")
        columns: dict[str, array[Any]] = {}
        for name, code, count in head["columns"]:
            column = array(code)
            data = file.read(count * column.itemsize)
            if len(data) != count * column.itemsize:
                raise ValueError(f"{path}: column {name}: {len(data)} bytes for {count} values")
            column.frombytes(data)
            columns[name] = column
    return WrittenLog(settings=head["settings"], summary=head["summary"], columns=columns)
