"""One request while its journal entries are read, and the Record that comes of it."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.adapter import Adapter
from harness.answer import Answer
from harness.load.calls import Planned
from harness.load.decode.body import Body
from harness.load.journal import Entry, Kind
from harness.types import Clock, ErrorClass, Phase, Record, ResponseHead

CUT_OFF = "cut off"
LOST = "lost: the load process ended"
_EXCERPT_BYTES = 40
_CLOCK_SLACK_S = 0.001  # two clocks are read for a stamp; more than this is no rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record belongs: the row of its level (-1: warm-up), block, worker."""

    level: int
    block: int
    phase: Phase
    worker: int | None


class Exchange:
    """One request as its entries come: from DUE to END. Times of entries are absolute.

    Args:
        entry: the DUE entry.
        make_body: a fresh body, for each time the request is sent; its argument: the number of the
            connection of a gRPC call, None for HTTP.
    """

    def __init__(self, entry: Entry, make_body: Callable[[int | None], Body]) -> None:
        self.index = entry.request
        self.level = int(entry.extra)
        self.due_s = entry.t_s
        self._user = int(entry.payload) if entry.payload else None
        self._make_body = make_body
        self._body = make_body(None)
        self._connect_s: float | None = None
        self._sent_s: float | None = None
        self._is_kernel = True
        self._late_s: float | None = None
        self._reads = 0
        self._attempts = 1
        self._retry_after_s: float | None = None
        self._headless = b""  # the beginning of the last read before the head came

    @property
    def first_s(self) -> float | None:
        """When the first token came, on the run's clock; None: it has not."""
        answer = self._body.answer
        return answer.chunk_s[0] if answer is not None and answer.chunk_s else None

    def take(self, entry: Entry, zero_s: float) -> None:
        """One entry between DUE and END."""
        if entry.kind in {Kind.READ, Kind.READ_USER}:
            self._reads += 1
            self._is_kernel &= entry.kind == Kind.READ
            self._late_s = max(self._late_s or 0.0, entry.extra)
            if self._body.head is None:
                self._headless = entry.payload[:_EXCERPT_BYTES]
            self._body.feed(entry.t_s - zero_s, entry.payload)
        elif entry.kind == Kind.SENT:
            if self._sent_s is None:  # the clock runs from the first time
                self._sent_s = entry.t_s
        elif entry.kind == Kind.CONNECTED:
            self._connect_s = entry.extra
        elif entry.kind == Kind.CHANNEL:
            self._body = self._make_body(int(entry.extra))
        elif entry.kind == Kind.RETRY:
            self._sent_s, self._body = None, self._make_body(None)
        elif entry.kind == Kind.AGAIN:
            self._attempts += 1
            self._retry_after_s = entry.extra
            self._body = self._make_body(None)

    def record(
        self, end: Entry, zero_s: float, adapter: Adapter, planned: Planned, place: Place
    ) -> Record:
        """The finished record; `end`: the END entry with the client's reason."""
        reason = end.payload.decode()
        end_s, due_s = end.t_s - zero_s, self.due_s - zero_s
        sent_s = None if self._sent_s is None else self._sent_s - zero_s
        answer = self._finished(reason, end_s, adapter)
        error, message = answer.error, answer.error_message
        if error is None and _is_before(answer.chunk_s, sent_s):
            error, message = ErrorClass.CLOCK_ERROR, "stamped before it was asked for"
        is_cut = reason == CUT_OFF
        head = self._body.head
        return Record(
            request_id=str(self.index),
            index=self.index,
            level=place.level,
            block=place.block,
            phase=place.phase,
            due_s=due_s,
            connect_s=self._connect_s,
            sent_s=sent_s,
            chunk_s=tuple(answer.chunk_s),
            chunk_tokens=tuple(answer.chunk_tokens),
            stream_end_s=answer.stream_end_s,
            prompt_tokens=answer.prompt_tokens,
            output_tokens=answer.output_tokens,
            tokens_source=answer.tokens_source,
            planned_input_tokens=planned.input_tokens,
            planned_output_tokens=planned.output_tokens,
            clock=Clock.KERNEL if self._is_kernel else Clock.USER,
            headers_s=self._body.head_s,
            cached_tokens=answer.cached_tokens,
            reasoning_tokens=answer.reasoning_tokens,
            finish_reason=answer.finish_reason,
            error=None if is_cut else error,
            error_message=None if is_cut else message,
            http_status=head.status if head else None,
            censored_s=end_s - due_s if is_cut else None,
            user=self._user,
            reads=self._reads,
            merged_reads=answer.merged_reads,
            late_s=self._late_s,
            text_sha256=hashlib.sha256(answer.text.encode()).hexdigest() if answer.text else None,
            group=planned.group,
            session=planned.session,
            turn=planned.turn,
            prefix_tokens=planned.prefix_tokens,
            lora=planned.lora,
            worker=place.worker,
            attempts=self._attempts,
            retry_after_s=_retry_after_s(head) or self._retry_after_s,
            draft_tokens=answer.draft_tokens,
            accepted_tokens=answer.accepted_tokens,
        )

    def _finished(self, reason: str, end_s: float, adapter: Adapter) -> Answer:
        body = self._body
        answer = body.answer
        if answer is None:  # not even a head came
            answer = Answer(adapter.decoder(ResponseHead(status=0)))
            error, message = failure(reason if reason != "eof" else "reset: closed")
            if self._headless and error is ErrorClass.STREAM_ERROR:
                message += f", in {self._headless!r}"
            answer.fail(end_s, error, message)
        elif reason == "eof" and body.is_cut and answer.finish_reason is None:
            answer.fail(end_s, ErrorClass.CONNECTION_ERROR, "closed in the middle of the answer")
        elif reason in {"complete", "eof"}:
            if answer.error is None:
                answer.end(end_s)
        else:
            answer.fail(end_s, *failure(reason))
        return answer


def _is_before(chunk_s: Sequence[float], sent_s: float | None) -> bool:
    """Whether an answer came before its request was sent: a clock was bent."""
    return bool(chunk_s) and sent_s is not None and chunk_s[0] < sent_s - _CLOCK_SLACK_S


def _retry_after_s(head: ResponseHead | None) -> float | None:
    """Seconds of a Retry-After header; a date in it is for the client, which knows the time."""
    text = head.headers.get("retry-after", "") if head else ""
    return float(text) if text.strip().isdecimal() else None


def failure(reason: str) -> tuple[ErrorClass, str]:
    """Error class and message of a client's reason for ending an exchange."""
    kind, _, detail = reason.partition(": ")
    if kind == "timeout":
        return ErrorClass.TIMEOUT, f"{detail or 'no end in time'} (load.request_timeout_s)"
    if kind == "garbage":
        return ErrorClass.STREAM_ERROR, f"not HTTP: {detail}"
    if kind == "lost":
        return ErrorClass.WORKER_LOST, detail
    return ErrorClass.CONNECTION_ERROR, f"{kind}: {detail}" if detail else kind
