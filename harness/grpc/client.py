"""The client's side of HTTP/2 without a socket: one call at a time on a connection.

What comes is cut by length, and no header block is parsed: of an
answer only its end is looked for. The windows that we grant are as large as they may be, so that
no server ever waits for us.
"""

from harness.grpc.call import header_frame
from harness.grpc.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW_BYTES,
    HEAD_BYTES,
    MAX_FRAME_BYTES,
    MAX_WINDOW_BYTES,
    PREFACE,
    ErrorCode,
    Frame,
    FrameCutter,
    FrameType,
    FramingError,
    Setting,
    frame,
    number,
    setting_pairs,
    settings,
    window_update,
)
from harness.grpc.outflow import Outflow

# No dynamic table: then every header block can be read alone.
_OPENING = (
    PREFACE
    + settings(
        HEADER_TABLE_SIZE=0,
        ENABLE_PUSH=0,
        INITIAL_WINDOW_SIZE=MAX_WINDOW_BYTES,
        MAX_FRAME_SIZE=MAX_FRAME_BYTES,
    )
    + window_update(0, MAX_WINDOW_BYTES - FIRST_WINDOW_BYTES)
)
_TOP_UP_BYTES = 1 << 30
_MAX_OUT_BYTES = 1 << 20  # replies to a server that asks and does not read


def _error_name(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"


class Http2Client:
    """What one connection has heard and says; `request`, then `feed` until the call has ended.

    `outflow`: what is to be sent. `is_leaving`: the connection takes no further call. Of the call
    that runs, `is_begun`: the server has answered something; `has_data`: a DATA frame came;
    `is_complete`: END_STREAM came; `reset`: why the server ended it otherwise, or empty.
    """

    __slots__ = (
        "_cutter",
        "_data_head",
        "_is_ending",
        "_is_greeted",
        "_stream",
        "_taken_bytes",
        "has_data",
        "is_begun",
        "is_complete",
        "is_leaving",
        "outflow",
        "reset",
    )

    def __init__(self) -> None:
        self._cutter = FrameCutter()
        self._is_greeted = False
        self._stream = -1
        self._taken_bytes = 0
        self._data_head = b""
        self._is_ending = False
        self.outflow = Outflow(_OPENING)
        self.is_begun = self.has_data = self.is_leaving = False
        self.is_complete = True
        self.reset = ""

    @property
    def is_inside(self) -> bool:
        """A frame has come only in part; a call that began now would begin inside it."""
        return self._cutter.is_inside

    def request(self, data: bytes) -> None:
        """Begin a call, as written by `grpc_bytes`, on the next stream."""
        self._stream += 2
        self.is_begun = self.has_data = self.is_complete = self._is_ending = False
        self.reset = ""
        head, begin = header_frame(data, self._stream)
        self.outflow.begin(self._stream, head, memoryview(data)[begin:])

    def feed(self, data: bytes) -> None:
        """Take what came; FramingError for what is no HTTP/2, or does not belong here."""
        size = len(data) - HEAD_BYTES
        if (  # one whole DATA frame of the call, as nearly every read is
            size >= 0
            and data[3:HEAD_BYTES] == self._data_head
            and data[0] << 16 | data[1] << 8 | data[2] == size
            and not self._cutter.is_inside
            and self._taken_bytes + size < _TOP_UP_BYTES
        ):
            self.has_data = True
            self._taken_bytes += size
            return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        frames = self._cutter.feed(data)
        if not self._is_greeted and frames:
            if frames[0].kind != FrameType.SETTINGS:
                raise FramingError("no HTTP/2: does not begin with SETTINGS")
            self._is_greeted = True
        for item in frames:
            if item.kind == FrameType.DATA and self._data_head and item.stream == self._stream:
                self.has_data = True
                self._taken_bytes += len(item.payload)
                if item.flags & END_STREAM:
                    self._complete()
            else:
                self._take(item)
        if self._cutter.error:
            raise FramingError(self._cutter.error if self._is_greeted else "no HTTP/2")
        if len(self.outflow.out) > _MAX_OUT_BYTES:
            raise FramingError("asks for replies and does not read them")
        if self._taken_bytes >= _TOP_UP_BYTES:
            self.outflow.out += window_update(0, self._taken_bytes)
            self._taken_bytes = 0

    def _take(self, item: Frame) -> None:
        kind = item.kind
        if kind in {FrameType.HEADERS, FrameType.CONTINUATION}:
            self._take_headers(item)
        elif kind == FrameType.SETTINGS and not item.flags & ACK:
            self._take_settings(item.payload)
        elif kind == FrameType.PING and not item.flags & ACK:
            self.outflow.out += frame(FrameType.PING, ACK, 0, item.payload)
        elif kind == FrameType.WINDOW_UPDATE:
            self.outflow.take_update(item.stream, number(item.payload))
        elif kind == FrameType.RST_STREAM and item.stream == self._stream:
            self._take_reset(number(item.payload))
        elif kind == FrameType.GOAWAY:
            self._take_goaway(item.payload)
        elif kind in {FrameType.DATA, FrameType.PUSH_PROMISE}:
            name = FrameType(kind).name
            raise FramingError(f"{name} on stream {item.stream}, which expects none")

    def _take_headers(self, item: Frame) -> None:
        if item.stream != self._stream or self.is_complete:
            raise FramingError(f"headers on stream {item.stream}, which expects none")
        self.is_begun = True
        self._data_head = bytes((FrameType.DATA, 0)) + self._stream.to_bytes(4, "big")
        if item.kind == FrameType.HEADERS:
            self._is_ending = bool(item.flags & END_STREAM)
        if self._is_ending and item.flags & END_HEADERS:
            self._complete()

    def _complete(self) -> None:
        self.is_complete = self.is_begun = True
        self._data_head = b""  # nothing more is expected

    def _take_settings(self, payload: bytes) -> None:
        for name, value in setting_pairs(payload):
            if name == Setting.INITIAL_WINDOW_SIZE:
                self.outflow.take_first_window(value)
        self.outflow.out += frame(FrameType.SETTINGS, ACK, 0)

    def _take_reset(self, code: int) -> None:
        if not self.is_complete:
            self.is_begun |= (
                code != ErrorCode.REFUSED_STREAM
            )  # a refused one was not looked at (8.7)
            self.reset = f"reset: RST_STREAM {_error_name(code)}"

    def _take_goaway(self, payload: bytes) -> None:
        self.is_leaving = True
        code = number(payload, 4)
        if number(payload) < self._stream and not self.is_complete:
            self.reset = f"reset: GOAWAY {_error_name(code)}"
