"""The client's side of HTTP/2 without a socket: what it sends, what it sees, what it refuses."""

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.grpc import frames as http2
from harness.grpc.call import grpc_bytes, pack_message
from harness.grpc.client import Http2Client
from harness.grpc.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    Frame,
    FrameCutter,
    FrameType,
    FramingError,
    frame,
)
from harness.testing.scripted_grpc import grpc_data, grpc_head, grpc_trailers
from harness.types import HttpCall, Wire

HELLO = http2.settings()


def call(body: bytes = b"hello") -> bytes:
    return grpc_bytes(
        HttpCall(path="/p.S/M", body=body, wire=Wire.GRPC), authority="h", request_id="1"
    )


def sent(client: Http2Client) -> list[Frame]:
    data = bytes(client.outflow.pump()).removeprefix(http2.PREFACE)
    client.outflow.out.clear()
    return FrameCutter().feed(data)


def begun(body: bytes = b"hello") -> Http2Client:
    client = Http2Client()
    client.request(call(body))
    sent(client)
    return client


def answer(stream: int = 1) -> bytes:
    return grpc_head(stream) + grpc_data(stream, b"a", b"b") + grpc_trailers(stream)


def test_h2_takes_what_a_connection_begins_with() -> None:
    client = Http2Client()
    client.request(call())
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    events = server.receive_data(bytes(client.outflow.pump()))
    changed = next(e for e in events if isinstance(e, h2.events.RemoteSettingsChanged))
    codes = h2.settings.SettingCodes
    assert {c: s.new_value for c, s in changed.changed_settings.items()} == {
        codes.HEADER_TABLE_SIZE: 0,
        codes.ENABLE_PUSH: 0,
        codes.INITIAL_WINDOW_SIZE: 2**31 - 1,
        codes.MAX_FRAME_SIZE: 2**20,
    }
    assert server.local_flow_control_window(1) == 2**31 - 1
    assert [e for e in events if isinstance(e, h2.events.StreamEnded)]


def test_an_answer_is_complete_at_its_end_and_the_next_call_has_the_next_stream() -> None:
    client = begun()
    data = HELLO + answer()
    client.feed(data[:-1])
    assert (client.is_begun, client.has_data, client.is_complete) == (True, True, False)
    assert client.is_inside
    client.feed(data[-1:])
    assert client.is_complete
    assert not client.is_inside
    assert sent(client) == [Frame(FrameType.SETTINGS, ACK, 0, b"")]
    client.request(call())
    assert not client.is_complete
    assert [(f.kind, f.flags, f.stream) for f in sent(client)] == [
        (FrameType.HEADERS, END_HEADERS, 3),
        (FrameType.DATA, END_STREAM, 3),
    ]
    client.feed(answer(3))
    assert client.is_complete


@pytest.mark.parametrize(
    ("end", "has_data"),
    [
        (grpc_head(1, flags=END_HEADERS | END_STREAM, grpc_status="14"), False),
        (grpc_head(1) + frame(FrameType.DATA, END_STREAM, 1, b""), True),
        (
            grpc_head(1)
            + frame(FrameType.HEADERS, END_STREAM, 1, b"")
            + frame(FrameType.CONTINUATION, END_HEADERS, 1, b""),
            False,
        ),
    ],
)
def test_every_form_of_an_end_is_seen_and_not_before_it(end: bytes, has_data: bool) -> None:
    client = begun()
    client.feed(HELLO + end[:-9])
    assert not client.is_complete
    client.feed(end[-9:])
    assert client.is_complete
    assert client.has_data is has_data


@given(sizes=st.lists(st.integers(1, 25), max_size=30))
def test_where_the_bytes_are_cut_makes_no_difference(sizes: list[int]) -> None:
    ping = frame(FrameType.PING, 0, 0, b"12345678")
    data = HELLO + ping + grpc_head(1) + grpc_data(1, b"abc") + ping + grpc_trailers(1)
    client = begun()
    at = 0
    for size in sizes:
        client.feed(data[at : at + size])
        at += size
        assert client.is_complete == (at >= len(data))
    client.feed(data[at:])
    assert client.is_complete
    assert sent(client) == [
        Frame(FrameType.SETTINGS, ACK, 0, b""),
        *[Frame(FrameType.PING, ACK, 0, b"12345678")] * 2,
    ]


def test_a_long_message_waits_for_the_servers_windows() -> None:
    body = bytes(range(256)) * 400
    client = Http2Client()
    client.request(call(body))
    first = sent(client)[2:]
    assert [f.kind for f in first] == [FrameType.HEADERS, *[FrameType.DATA] * 4]
    assert sum(len(f.payload) for f in first[1:]) == 65535
    assert not client.outflow.is_empty
    client.feed(HELLO + http2.window_update(1, 1_000_000))  # the connection's is still shut
    assert [f.kind for f in sent(client)] == [FrameType.SETTINGS]
    client.feed(http2.window_update(0, 30_000))
    client.feed(http2.window_update(0, 1_000_000))
    rest = sent(client)
    assert client.outflow.is_empty
    data = first[1:] + rest
    assert b"".join(f.payload for f in data) == pack_message(body)
    assert [f.flags for f in data] == [0] * (len(data) - 1) + [END_STREAM]
    assert max(len(f.payload) for f in data) <= 16384


def test_a_window_that_settings_shrink_below_zero_must_open_again() -> None:
    client = Http2Client()
    client.request(call(bytes(80_000)))
    sent(client)
    client.feed(http2.settings(INITIAL_WINDOW_SIZE=10) + http2.window_update(0, 100_000))
    client.feed(http2.window_update(1, 65_525))
    assert [f.kind for f in sent(client)] == [FrameType.SETTINGS]
    client.feed(http2.window_update(1, 7))
    assert [len(f.payload) for f in sent(client)] == [7]
    client.feed(http2.settings(INITIAL_WINDOW_SIZE=100_000))
    assert client.outflow.pump()
    assert sent(client)[-1].flags == END_STREAM


def test_our_window_is_opened_again_before_it_is_used_up() -> None:
    client = begun()
    client.feed(HELLO + grpc_head(1))
    sent(client)
    piece = frame(FrameType.DATA, 0, 1, bytes(1 << 20))
    for _ in range((1 << 10) - 1):
        client.feed(piece)
        assert not client.outflow.out
    client.feed(piece)
    assert sent(client) == [Frame(FrameType.WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big"))]


@pytest.mark.parametrize(
    ("data", "is_begun", "reset"),
    [
        (frame(FrameType.RST_STREAM, 0, 1, b"\0\0\0\x07"), False, "RST_STREAM REFUSED_STREAM"),
        (frame(FrameType.RST_STREAM, 0, 1, b"\0\0\0\x08"), True, "RST_STREAM CANCEL"),
        (frame(FrameType.RST_STREAM, 0, 1, b"\0\0\0\xee"), True, "RST_STREAM error 238"),
        (frame(FrameType.GOAWAY, 0, 0, bytes(8)), False, "GOAWAY NO_ERROR"),
        (
            grpc_head(1) + frame(FrameType.GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\x0bslow"),
            True,
            "GOAWAY ENHANCE_YOUR_CALM",
        ),
    ],
)
def test_a_call_that_the_server_ends_says_why(data: bytes, is_begun: bool, reset: str) -> None:
    client = begun()
    client.feed(HELLO + data)
    assert (client.is_begun, client.reset) == (is_begun, f"reset: {reset}")
    assert not client.is_complete


def test_a_goaway_behind_our_stream_lets_the_call_end_and_no_further_one_begin() -> None:
    client = begun()
    client.feed(HELLO + frame(FrameType.GOAWAY, 0, 0, b"\0\0\0\x01" + bytes(4)))
    assert (client.reset, client.is_leaving) == ("", True)
    client.feed(answer())
    assert client.is_complete


def test_what_concerns_no_call_of_ours_is_passed_over() -> None:
    client = begun()
    client.feed(HELLO + answer())
    client.request(call())
    client.feed(
        frame(FrameType.RST_STREAM, 0, 1, bytes(4))
        + http2.window_update(1, 5)
        + frame(FrameType.SETTINGS, ACK, 0)
        + frame(FrameType.PING, ACK, 0, bytes(8))
        + frame(FrameType.PRIORITY, 0, 1, bytes(5))
        + frame(99, 0, 1, b"later versions")
        + answer(3)
    )
    assert client.is_complete
    assert client.reset == ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no HTTP/2"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "no HTTP/2"),
        (frame(FrameType.PING, 0, 0, bytes(8)), "does not begin with SETTINGS"),
        (HELLO + b"\xff" * 9, "a frame of 16777215 bytes"),
        (HELLO + frame(FrameType.SETTINGS, 0, 0, b"12345"), "SETTINGS of 5 bytes"),
        (http2.settings(INITIAL_WINDOW_SIZE=2**31), "a window of 2147483648 bytes"),
        (HELLO + frame(FrameType.GOAWAY, 0, 0, bytes(7)), "control frame of 7 bytes"),
        (HELLO + frame(FrameType.WINDOW_UPDATE, 0, 0, b""), "control frame of 0 bytes"),
        (HELLO + frame(FrameType.RST_STREAM, 0, 1, b""), "control frame of 0 bytes"),
        (HELLO + frame(FrameType.PUSH_PROMISE, 4, 1, bytes(9)), "PUSH_PROMISE on stream 1"),
        (HELLO + frame(FrameType.DATA, 0, 0, b"x"), "DATA on stream 0"),
        (HELLO + grpc_head(2), "headers on stream 2"),
        (HELLO + answer() + grpc_data(1, b"more"), "DATA on stream 1"),
        (HELLO + grpc_data(1, b"before its head"), "DATA on stream 1"),
        (grpc_data(1, b"before all else"), "does not begin with SETTINGS"),
        (HELLO + answer() + grpc_head(1), "headers on stream 1"),
    ],
)
def test_what_is_no_http2_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(FramingError, match=message):
        begun().feed(data)


def test_a_server_that_only_asks_is_left_before_memory_is_full() -> None:
    client = begun()
    flood = frame(FrameType.PING, 0, 0, bytes(8)) * 10_000
    with pytest.raises(FramingError, match="does not read"):
        for data in [HELLO, *[flood] * 7]:
            client.feed(data)
    assert len(client.outflow.out) < 2 << 20
