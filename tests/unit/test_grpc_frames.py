"""HTTP/2 frames, gRPC messages and written calls: against the h2 family's own readers."""

import h2.config
import h2.connection
import h2.events
import hpack
import hyperframe.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.grpc import frames as http2
from harness.grpc.call import (
    MessageCutter,
    MessageError,
    grpc_bytes,
    header_frame,
    pack_message,
)
from harness.grpc.frames import Frame, FrameCutter, FrameType, FramingError
from harness.types import HttpCall, Wire

CALL = HttpCall(path="/p.S/M", body=b"hello", headers={"X-Own": "1"}, wire=Wire.GRPC)
FRAMES = st.lists(
    st.builds(
        Frame,
        kind=st.integers(0, 12),
        flags=st.integers(0, 255),
        stream=st.integers(0, 2**31 - 1),
        payload=st.binary(max_size=40),
    ),
    min_size=1,
    max_size=6,
)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, data[at:]]


@given(frames=FRAMES, sizes=st.lists(st.integers(1, 30), max_size=20))
def test_frames_come_out_as_they_went_in_wherever_they_are_cut(
    frames: list[Frame], sizes: list[int]
) -> None:
    data = b"".join(http2.frame(*item) for item in frames)
    cutter = FrameCutter()
    assert [f for piece in cut(data, sizes) for f in cutter.feed(piece)] == frames
    assert not cutter.is_inside
    assert cutter.error == ""


def test_a_frame_byte_by_byte() -> None:
    data = http2.frame(FrameType.PING, 0, 0, b"12345678")
    cutter = FrameCutter()
    for i in range(len(data) - 1):
        assert cutter.feed(data[i : i + 1]) == []
        assert cutter.is_inside
    assert cutter.feed(data[-1:]) == [Frame(6, 0, 0, b"12345678")]


def test_what_is_no_frame_is_an_error_after_the_whole_ones() -> None:
    ping = http2.frame(FrameType.PING, 0, 0, b"12345678")
    cutter = FrameCutter()
    assert cutter.feed(ping + b"HTTP/1.1 400 Bad Request\r\n") == [Frame(6, 0, 0, b"12345678")]
    assert cutter.error == "a frame of 4740180 bytes: at most 1048576"
    assert cutter.feed(ping) == []


def test_what_we_make_is_what_hyperframe_reads() -> None:
    data = http2.settings(HEADER_TABLE_SIZE=0, INITIAL_WINDOW_SIZE=7)
    made, size = hyperframe.frame.Frame.parse_frame_header(memoryview(data[:9]))
    made.parse_body(memoryview(data[9 : 9 + size]))
    assert isinstance(made, hyperframe.frame.SettingsFrame)
    assert made.settings == {1: 0, 4: 7}
    assert http2.setting_pairs(data[9:]) == [(1, 0), (4, 7)]
    assert http2.window_update(3, 9)[9:] == b"\x00\x00\x00\x09"


@pytest.mark.parametrize(
    ("kind", "flags", "payload", "expected"),
    [
        (FrameType.DATA, 0, b"abc", b"abc"),
        (FrameType.DATA, 0x8, b"\x02abc\x00\x00", b"abc"),
        (FrameType.HEADERS, 0x20, b"\x00\x00\x00\x00\x0fabc", b"abc"),
        (FrameType.HEADERS, 0x28, b"\x01\x00\x00\x00\x00\x0fabc\x00", b"abc"),
        (FrameType.CONTINUATION, 0xFF, b"abc", b"abc"),
    ],
)
def test_padding_and_priority_are_taken_off(
    kind: int, flags: int, payload: bytes, expected: bytes
) -> None:
    assert http2.content(Frame(kind, flags, 1, payload)) == expected


@pytest.mark.parametrize("payload", [b"", b"\x03ab", b"\xff"])
def test_more_padding_than_payload_is_an_error(payload: bytes) -> None:
    with pytest.raises(FramingError, match="more padding"):
        http2.content(Frame(FrameType.DATA, 0x8, 1, payload))


@given(
    messages=st.lists(st.binary(max_size=30), max_size=6),
    sizes=st.lists(st.integers(1, 20), max_size=20),
)
def test_messages_come_out_whole_and_in_order(messages: list[bytes], sizes: list[int]) -> None:
    cutter = MessageCutter()
    pieces = cut(b"".join(map(pack_message, messages)), sizes)
    assert [m for piece in pieces for m in cutter.feed(piece)] == messages
    assert not cutter.is_inside


def test_a_compressed_message_is_an_error_and_half_a_one_shows() -> None:
    with pytest.raises(MessageError, match="compressed"):
        MessageCutter().feed(b"\x01\x00\x00\x00\x00")
    cutter = MessageCutter()
    assert cutter.feed(pack_message(b"abc")[:-1]) == []
    assert cutter.is_inside


def test_a_written_call_is_read_by_h2_on_any_stream() -> None:
    data = grpc_bytes(CALL, authority="host:1", request_id="7")
    assert data[5:9] == bytes(4)
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.receive_data(http2.PREFACE + http2.settings())
    for stream in (1, 3):
        head, begin = header_frame(data, stream)
        body = http2.frame(FrameType.DATA, http2.END_STREAM, stream, data[begin:])
        events = server.receive_data(head + body)
        request, piece, _ = events
        assert isinstance(request, h2.events.RequestReceived)
        assert isinstance(piece, h2.events.DataReceived)
        assert request.stream_id == stream
        assert dict(request.headers) == {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": b"/p.S/M",
            b":authority": b"host:1",
            b"te": b"trailers",
            b"content-type": b"application/grpc",
            b"user-agent": b"bakeoff",
            b"x-request-id": b"7",
            b"x-own": b"1",
        }
        assert piece.data == b"\x00\x00\x00\x00\x05hello"


def test_a_written_call_is_read_whatever_table_a_server_allows() -> None:
    block = header_frame(grpc_bytes(CALL, authority="h", request_id="1"), 1)[0][9:]
    for size in (0, 4096):
        decoder = hpack.Decoder()
        decoder.max_allowed_table_size = size
        assert len(list(decoder.decode(block))) == 9


def test_headers_that_no_frame_holds_are_refused_before_the_load() -> None:
    call = HttpCall(path="/p.S/M", headers={"x": "y" * 16384}, wire=Wire.GRPC)
    with pytest.raises(ConfigError, match="a gRPC call may have 16384"):
        grpc_bytes(call, authority="h", request_id="1")
