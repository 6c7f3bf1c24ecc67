"""One gRPC answer as it is read from the journal: head, whole messages, status. Sans-IO.

The counterpart of `decode.body.HttpBody`. Sources: RFC 9113 (frames), RFC 7541 (headers), "gRPC
over HTTP2" (messages, trailers) and its status codes.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from urllib.parse import unquote

import hpack

from harness.adapter import Adapter
from harness.answer import Answer
from harness.grpc.call import MessageCutter, MessageError
from harness.grpc.frames import (
    END_HEADERS,
    END_STREAM,
    Frame,
    FrameCutter,
    FrameType,
    FramingError,
    content,
)
from harness.types import ErrorClass, ResponseHead

_OK_STATUS = 200


class GrpcStatus(IntEnum):
    """gRPC's status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_STATUS_ERRORS: Mapping[int, ErrorClass] = {
    GrpcStatus.RESOURCE_EXHAUSTED: ErrorClass.RATE_LIMITED,
    GrpcStatus.UNAVAILABLE: ErrorClass.HTTP_5XX,
}


class HeaderTables:
    """The state of header compression of each connection in a journal, by its number.

    Servers are told to keep none, so most of it stays empty; for one that does, blocks must be
    read in the order in which the connection carried them, which is that of the journal.
    """

    def __init__(self) -> None:
        self._decoders: dict[int, hpack.Decoder] = {}

    def of(self, channel: int) -> hpack.Decoder:
        """The state of this connection."""
        return self._decoders.setdefault(channel, hpack.Decoder())


class GrpcBody:
    """One answer as it is read: `feed` takes what came off the socket, with its stamp.

    The adapter's decoder is fed whole messages, one a call, without gRPC's prefix. `head`,
    `head_s`: None before the head came; its headers gain the trailers when they come. `answer`:
    the fold of what the messages say.

    Args:
        headers: header compression of the answer's connection; None: nothing was read before.
    """

    def __init__(
        self,
        adapter: Adapter,
        count_tokens: Callable[[str], int] | None,
        headers: hpack.Decoder | None = None,
    ) -> None:
        self._adapter = adapter
        self._count_tokens = count_tokens
        self._decoder = headers or hpack.Decoder()
        self._frames = FrameCutter()
        self._messages = MessageCutter()
        self._headers: dict[str, str] = {}
        self._block = b""
        self._stream: int | None = None
        self._is_last_block = False
        self._is_ended = False
        self.head: ResponseHead | None = None
        self.head_s: float | None = None
        self.answer: Answer | None = None

    @property
    def is_cut(self) -> bool:
        """Whether the answer has begun and its end has not come."""
        return self.head is not None and not self._is_ended

    def feed(self, t_s: float, data: bytes) -> None:
        """Take one read of the socket; the messages that it completes are one read of the answer.

        What is no HTTP/2 is left out: the client noted it, and the END entry carries the reason.
        """
        pieces: list[bytes] = []
        problem = ""
        for item in self._frames.feed(data):
            if self._is_ended or problem:
                break
            try:
                self._take(t_s, item, pieces)
            except (FramingError, MessageError) as error:
                problem = str(error)
            except hpack.HPACKError as error:
                problem = f"headers that cannot be read: {error or type(error).__name__}"
        if pieces and self.answer is not None:
            self.answer.feed(t_s, *pieces)
        if problem:
            self._fail(t_s, ErrorClass.STREAM_ERROR, problem)
        elif self._is_ended:
            self._judge(t_s)

    def _take(self, t_s: float, item: Frame, pieces: list[bytes]) -> None:
        if item.kind in {FrameType.HEADERS, FrameType.CONTINUATION}:
            if item.kind == FrameType.HEADERS:
                self._stream = item.stream
                self._is_last_block = bool(item.flags & END_STREAM)
                self._block = b""
            self._block += content(item)
            if item.flags & END_HEADERS:
                self._take_headers(t_s)
        elif item.kind == FrameType.DATA and item.stream == self._stream:
            pieces += self._messages.feed(content(item))
            self._is_ended = bool(item.flags & END_STREAM)

    def _take_headers(self, t_s: float) -> None:
        fields = {_text(name): _text(value) for name, value in self._decoder.decode(self._block)}
        status = fields.pop(":status", "200")
        if status.startswith("1"):  # an interim answer; the real head follows
            return
        self._is_ended = self._is_last_block
        self._headers.update(fields)
        if self.head is None:
            self.head_s = t_s
            self._begin(ResponseHead(status=_number(status) or 0, headers=self._headers))

    def _begin(self, head: ResponseHead) -> Answer:
        self.head = head
        self.answer = Answer(self._adapter.decoder(head), count_tokens=self._count_tokens)
        return self.answer

    def _fail(self, t_s: float, error: ErrorClass, message: str) -> None:
        answer = self.answer or self._begin(ResponseHead(status=0))
        answer.fail(t_s, error, message)

    def _judge(self, t_s: float) -> None:
        """What the end says: the trailers' status, or the lack of one."""
        status = self.head.status if self.head else 0
        code = _number(self._headers.get("grpc-status", ""))
        if code is None and status != _OK_STATUS:
            kind = ErrorClass.HTTP_4XX if 400 <= status < 500 else ErrorClass.HTTP_5XX  # noqa: PLR2004
            self._fail(t_s, kind, f"HTTP status {status} and no grpc-status")
        elif code is None:
            self._fail(t_s, ErrorClass.STREAM_ERROR, "ended without a grpc-status")
        elif code != 0:
            name = GrpcStatus(code).name if code in set(GrpcStatus) else "not known"
            said = unquote(self._headers.get("grpc-message", ""))
            message = f"grpc-status {code} ({name})" + (f": {said}" if said else "")
            self._fail(t_s, _STATUS_ERRORS.get(code, ErrorClass.STREAM_ERROR), message)
        elif self._messages.is_inside:
            self._fail(t_s, ErrorClass.STREAM_ERROR, "ended inside a message")


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 4 else None  # noqa: PLR2004
