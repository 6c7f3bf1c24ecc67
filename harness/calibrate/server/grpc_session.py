"""A server's side of a gRPC connection: HTTP/2 frames to calls, within the client's windows.

Streams of one connection may run beside each other, as real clients of gRPC want it.
"""

from collections.abc import Callable

import hpack

from harness.calibrate.server.connection import Connection
from harness.calibrate.server.grpc_stream import GrpcStream, Outlet
from harness.grpc.call import MessageError
from harness.grpc.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW_BYTES,
    MAX_FRAME_BYTES,
    MAX_WINDOW_BYTES,
    PREFACE,
    ErrorCode,
    Frame,
    FrameCutter,
    FrameType,
    FramingError,
    Setting,
    content,
    frame,
    number,
    setting_pairs,
    settings,
    window_update,
)

_OPENING = settings(
    MAX_FRAME_SIZE=MAX_FRAME_BYTES, INITIAL_WINDOW_SIZE=MAX_WINDOW_BYTES
) + window_update(0, MAX_WINDOW_BYTES - FIRST_WINDOW_BYTES)
_TOP_UP_BYTES = 1 << 30
_INDEX_DIGITS = 18  # what a signed 64-bit column holds


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


class GrpcSession:
    """One client's connection: its frames, its streams, its windows.

    `answer`: told of each call when its last byte has come, with its stamp.
    """

    def __init__(self, connection: Connection, answer: Callable[[GrpcStream], None]) -> None:
        self._connection = connection
        self._answer = answer
        self._cutter = FrameCutter()
        self._is_greeted = False
        self._headers = hpack.Decoder()
        self._outlet = Outlet(connection=connection)
        self._streams: dict[int, GrpcStream] = {}
        self._first_room = FIRST_WINDOW_BYTES
        self._block = b""
        self._is_last_block = False
        self._taken_bytes = 0

    def on_read(self) -> None:
        """Take what has come; a client that speaks no HTTP/2 is sent away."""
        try:
            if self._greet():
                self._take_all()
        except (FramingError, MessageError, hpack.HPACKError):
            code = ErrorCode.PROTOCOL_ERROR.to_bytes(4, "big")
            self._connection.put(frame(FrameType.GOAWAY, 0, 0, bytes(4) + code))
            self._connection.close()

    def _greet(self) -> bool:
        buffer = self._connection.buffer
        if not self._is_greeted:
            if not PREFACE.startswith(buffer[: len(PREFACE)]):
                raise FramingError("no HTTP/2")
            if len(buffer) >= len(PREFACE):
                del buffer[: len(PREFACE)]
                self._is_greeted = True
                self._connection.put(_OPENING)
        return self._is_greeted

    def _take_all(self) -> None:
        data = bytes(self._connection.buffer)
        self._connection.buffer.clear()
        for item in self._cutter.feed(data):
            self._take(item)
        if self._cutter.error:
            raise FramingError(self._cutter.error)

    def _take(self, item: Frame) -> None:
        kind = item.kind
        if kind in {FrameType.HEADERS, FrameType.CONTINUATION}:
            self._take_headers(item)
        elif kind == FrameType.DATA:
            self._take_data(item)
        elif kind == FrameType.SETTINGS and not item.flags & ACK:
            self._take_settings(item.payload)
        elif kind == FrameType.PING and not item.flags & ACK:
            self._connection.put(frame(FrameType.PING, ACK, 0, item.payload))
        elif kind == FrameType.WINDOW_UPDATE:
            self._take_window(item.stream, number(item.payload))
        elif kind == FrameType.RST_STREAM and item.stream in self._streams:
            self._streams.pop(item.stream).is_gone = True

    def _take_headers(self, item: Frame) -> None:
        if item.kind == FrameType.HEADERS:
            self._block = b""
            self._is_last_block = bool(item.flags & END_STREAM)
        self._block += content(item)
        if not item.flags & END_HEADERS:
            return
        fields = {_text(name): _text(value) for name, value in self._headers.decode(self._block)}
        index = fields.get("x-request-id", "")
        stream = self._streams[item.stream] = GrpcStream(
            outlet=self._outlet,
            number=item.stream,
            room=self._first_room,
            forget=lambda number: self._streams.pop(number, None),
            path=fields.get(":path", ""),
            index=int(index) if index.isdecimal() and len(index) <= _INDEX_DIGITS else None,
        )
        if self._is_last_block:
            self._complete(stream)

    def _take_data(self, item: Frame) -> None:
        self._taken_bytes += len(item.payload)
        if self._taken_bytes >= _TOP_UP_BYTES:
            self._connection.put(window_update(0, self._taken_bytes))
            self._taken_bytes = 0
        stream = self._streams.get(item.stream)
        if stream is not None:
            for message in stream.messages.feed(content(item)):
                stream.message = message
            if item.flags & END_STREAM:
                self._complete(stream)

    def _take_settings(self, payload: bytes) -> None:
        for name, value in setting_pairs(payload):
            if name == Setting.INITIAL_WINDOW_SIZE:
                for stream in list(self._streams.values()):
                    stream.room += value - self._first_room
                    stream.release()
                self._first_room = value
        self._connection.put(frame(FrameType.SETTINGS, ACK, 0))

    def _take_window(self, stream: int, size: int) -> None:
        if stream == 0:
            self._outlet.room += size
            for each in list(self._streams.values()):
                each.release()
        elif stream in self._streams:
            self._streams[stream].room += size
            self._streams[stream].release()

    def _complete(self, stream: GrpcStream) -> None:
        stream.stamp_s, stream.is_kernel = self._connection.stamp_s, self._connection.is_kernel
        self._answer(stream)
