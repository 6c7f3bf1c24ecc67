"""From the raw journal to Records: HTTP framing, the adapter's meaning, the clock's zero.

Pure after the load: it can be run again on a kept journal when a parser has been mended.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httptools

from harness.adapter import Adapter
from harness.answer import Answer
from harness.load.journal import Entry, Kind, json_payload, read_entries
from harness.types import (
    Clock,
    ErrorClass,
    Level,
    Phase,
    Record,
    ResponseHead,
)

_OK_STATUS = 200
_CUT_OFF = "cut off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What the plan knew of a request."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedLevel:
    """What a level was meant to be, for its row in `run.json`."""

    name: str
    shape: str
    users: int | None
    rate_rps: float | None
    is_warmup: bool
    planned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A whole journal: its records, its measured levels, and the zero of its clock."""

    zero_s: float
    started_at_s: float
    records: tuple[Record, ...]
    levels: tuple[Level, ...]


class _Body:
    """HTTP framing of one answer: calls back with head and body pieces, sans-IO."""

    def __init__(self, adapter: Adapter, count_tokens: Callable[[str], int] | None) -> None:
        self._adapter = adapter
        self._count_tokens = count_tokens
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self.t_s = 0.0
        self.head_s: float | None = None
        self.head: ResponseHead | None = None
        self.answer: Answer | None = None
        self.is_whole = False
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status < _OK_STATUS:  # an interim answer; the real head follows
            self._headers = {}
            return
        self.head = ResponseHead(status=status, headers=self._headers)
        self.head_s = self.t_s
        decoder = self._adapter.decoder(self.head)
        self.answer = Answer(decoder, count_tokens=self._count_tokens)

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self.is_whole = self.head is not None

    @property
    def is_cut(self) -> bool:
        """Whether the framing promised more than came; only a body without it may just end."""
        framed = {"content-length", "transfer-encoding"} & set(self._headers)
        return bool(framed) and not self.is_whole

    def feed(self, t_s: float, data: bytes) -> None:
        """Take one read of the socket; the body bytes in it are one read of the answer."""
        self.t_s = t_s
        # the client noted what is not HTTP; the END entry carries the reason
        with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.parser.feed_data(data)
        if self._pieces and self.answer is not None:
            self.answer.feed(t_s, b"".join(self._pieces))
        self._pieces.clear()


@dataclass(slots=True, kw_only=True)
class _Open:
    """One request while its entries are read."""

    index: int
    level: int
    due_s: float
    user: int | None
    body: _Body
    connect_s: float | None = None
    sent_s: float | None = None
    is_kernel: bool = True
    late_s: float | None = None
    reads: int = 0


@dataclass(slots=True, kw_only=True)
class JournalDecoder:
    """Decodes one journal. `planned`: by request index. `levels`: in the order played."""

    adapter: Adapter
    block: int
    planned: Callable[[int], Planned]
    levels: tuple[PlayedLevel, ...]
    count_tokens: Callable[[str], int] | None = None
    _open: dict[int, _Open] = field(default_factory=dict)
    _zero_s: float = 0.0

    def decode(self, path: Path) -> Decoded:
        """Read the journal from start to end; requests that never ended become errors."""
        records: list[Record] = []
        levels: dict[int, Mapping[str, object]] = {}
        started_at_s = last_s = 0.0
        for entry in read_entries(path):
            last_s = max(last_s, entry.t_s)
            if entry.kind == Kind.OPEN:
                self._zero_s, started_at_s = entry.t_s, entry.extra
            elif entry.kind == Kind.LEVEL:
                levels[int(entry.extra)] = {**json_payload(entry), "drained_s": entry.t_s}
            elif entry.kind == Kind.END:
                records.append(self._close(entry))
            else:
                self._take(entry)
        for index in list(self._open):
            lost = Entry(Kind.END, index, last_s, 0.0, b"lost: the load process ended")
            records.append(self._close(lost))
        records.sort(key=lambda record: (record.level, record.index))
        return Decoded(
            zero_s=self._zero_s,
            started_at_s=started_at_s,
            records=tuple(records),
            levels=tuple(self._level_rows(levels)),
        )

    def _take(self, entry: Entry) -> None:
        if entry.kind == Kind.DUE:
            self._open[entry.request] = _Open(
                index=entry.request,
                level=int(entry.extra),
                due_s=entry.t_s,
                user=int(entry.payload) if entry.payload else None,
                body=_Body(self.adapter, self.count_tokens),
            )
            return
        request = self._open[entry.request]
        if entry.kind == Kind.CONNECTED:
            request.connect_s = entry.extra
        elif entry.kind == Kind.SENT:
            request.sent_s = entry.t_s
        elif entry.kind == Kind.RETRY:
            request.body = _Body(self.adapter, self.count_tokens)
        else:
            self._read(request, entry)

    def _read(self, request: _Open, entry: Entry) -> None:
        request.reads += 1
        request.is_kernel &= entry.kind == Kind.READ
        request.late_s = max(request.late_s or 0.0, entry.extra)
        request.body.feed(entry.t_s - self._zero_s, entry.payload)

    def _close(self, entry: Entry) -> Record:
        request = self._open.pop(entry.request)
        end_s = entry.t_s - self._zero_s
        answer = self._finished_answer(request.body, entry.payload.decode(), end_s)
        is_cut = entry.payload.decode() == _CUT_OFF
        planned = self.planned(request.index)
        level = self.levels[request.level]
        due_s = request.due_s - self._zero_s
        return Record(
            request_id=str(request.index),
            index=request.index,
            level=self._row_of(request.level),
            block=self.block,
            phase=Phase.WARMUP if level.is_warmup else Phase.MEASURE,
            due_s=due_s,
            connect_s=request.connect_s,
            sent_s=None if request.sent_s is None else request.sent_s - self._zero_s,
            chunk_s=tuple(answer.chunk_s),
            chunk_tokens=tuple(answer.chunk_tokens),
            stream_end_s=answer.stream_end_s,
            prompt_tokens=answer.prompt_tokens,
            output_tokens=answer.output_tokens,
            tokens_source=answer.tokens_source,
            planned_input_tokens=planned.input_tokens,
            planned_output_tokens=planned.output_tokens,
            clock=Clock.KERNEL if request.is_kernel else Clock.USER,
            headers_s=request.body.head_s,
            cached_tokens=answer.cached_tokens,
            reasoning_tokens=answer.reasoning_tokens,
            finish_reason=answer.finish_reason,
            error=None if is_cut else answer.error,
            error_message=None if is_cut else answer.error_message,
            http_status=request.body.head.status if request.body.head else None,
            censored_s=end_s - due_s if is_cut else None,
            user=request.user,
            reads=request.reads,
            merged_reads=answer.merged_reads,
            late_s=request.late_s,
            text_sha256=hashlib.sha256(answer.text.encode()).hexdigest() if answer.text else None,
        )

    def _finished_answer(self, body: _Body, reason: str, end_s: float) -> Answer:
        answer = body.answer
        if answer is None:  # not even a head came
            head = ResponseHead(status=0)
            answer = Answer(self.adapter.decoder(head), count_tokens=self.count_tokens)
            answer.fail(end_s, *_failure(reason if reason != "eof" else "reset: closed"))
        elif reason == "eof" and body.is_cut and answer.finish_reason is None:
            answer.fail(end_s, ErrorClass.CONNECTION_ERROR, "closed in the middle of the answer")
        elif reason in {"complete", "eof"}:
            answer.end(end_s)
        else:
            answer.fail(end_s, *_failure(reason))
        return answer

    def _row_of(self, number: int) -> int:
        """The level's row among the measured ones; -1 for the warm-up."""
        measured = [i for i, level in enumerate(self.levels) if not level.is_warmup]
        return measured.index(number) if number in measured else -1

    def _level_rows(self, ends: Mapping[int, Mapping[str, object]]) -> Iterator[Level]:
        for number, level in enumerate(self.levels):
            if level.is_warmup or number not in ends:
                continue
            end = ends[number]
            yield Level(
                index=self._row_of(number),
                name=level.name,
                shape=level.shape,
                users=level.users,
                rate_rps=level.rate_rps,
                window_start_s=float(str(end["start_s"])) - self._zero_s,
                window_end_s=float(str(end["window_end_s"])) - self._zero_s,
                drained_s=float(str(end["drained_s"])) - self._zero_s,
                planned=level.planned,
                exhausted=bool(end["exhausted"]),
            )


def _failure(reason: str) -> tuple[ErrorClass, str]:
    """Error class and message of a client's reason for ending an exchange."""
    kind, _, detail = reason.partition(": ")
    if kind == "timeout":
        return ErrorClass.TIMEOUT, "load.request_timeout_s passed"
    if kind == "garbage":
        return ErrorClass.STREAM_ERROR, f"not HTTP: {detail}"
    if kind == "lost":
        return ErrorClass.WORKER_LOST, detail
    return ErrorClass.CONNECTION_ERROR, f"{kind}: {detail}" if detail else kind
