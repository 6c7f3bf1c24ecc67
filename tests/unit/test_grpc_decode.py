"""gRPC answers decoded from what was read: head, messages, status; against h2's own reading."""

from collections.abc import Sequence
from typing import cast

import h2.config
import h2.connection
import h2.events
import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.adapter import Adapter
from harness.grpc import frames as http2
from harness.grpc.call import MessageCutter, pack_message
from harness.grpc.decode import GrpcBody, HeaderTables
from harness.grpc.frames import END_HEADERS, END_STREAM, FrameType, frame
from harness.grpc.kept import read_grpc_answer
from harness.testing.scripted_grpc import grpc_data, grpc_head, grpc_trailers
from harness.types import Chunk, ChunkKind, ErrorClass, ResponseHead

PING = frame(FrameType.PING, 0, 0, bytes(8))


class TextDecoder:
    """Each message is text; an empty one ends the answer."""

    def feed(self, data: bytes) -> list[Chunk]:
        if data:
            return [Chunk(kind=ChunkKind.TEXT, text=data.decode())]
        return [Chunk(kind=ChunkKind.END, finish_reason="stop")]

    def end(self) -> list[Chunk]:
        return []


class TextAdapter:
    def __init__(self) -> None:
        self.heads: list[ResponseHead] = []

    def decoder(self, head: ResponseHead) -> TextDecoder:
        self.heads.append(head)
        return TextDecoder()


def body(headers: hpack.Decoder | None = None) -> GrpcBody:
    return GrpcBody(cast("Adapter", TextAdapter()), None, headers)


def read(*reads: bytes, headers: hpack.Decoder | None = None) -> GrpcBody:
    """Reads that come at 1 s, 2 s, ..."""
    made = body(headers)
    for i, data in enumerate(reads):
        made.feed(float(i + 1), data)
    return made


def text_and_stamps(made: GrpcBody) -> tuple[str, list[float]]:
    assert made.answer is not None
    return made.answer.text, made.answer.chunk_s


def test_an_answer_has_head_messages_stamps_and_trailers() -> None:
    made = read(
        http2.settings() + PING,
        grpc_head(1, server="mii"),
        grpc_data(1, b"a"),
        PING,
        grpc_data(1, b"b", b"c"),
        grpc_data(1, b"") + grpc_trailers(1),
    )
    assert made.head is not None
    assert made.head.status == 200
    assert made.head.headers == {
        "content-type": "application/grpc",
        "server": "mii",
        "grpc-status": "0",
    }
    assert made.head_s == 2.0
    assert text_and_stamps(made) == ("abc", [3.0, 5.0, 5.0])
    assert made.answer is not None
    assert (made.answer.reads, made.answer.merged_reads) == (3, 1)
    assert (made.answer.finish_reason, made.answer.error) == ("stop", None)
    assert not made.is_cut


@given(
    messages=st.lists(st.text(min_size=1, max_size=9), max_size=5),
    sizes=st.lists(st.integers(1, 30), max_size=30),
    splits=st.booleans(),
)
def test_the_text_is_the_same_wherever_reads_and_frames_are_cut(
    messages: list[str], sizes: list[int], splits: bool
) -> None:
    packed = b"".join(pack_message(m.encode()) for m in messages)
    middle = len(packed) // 2 if splits else 0
    data = http2.settings() + grpc_head(1)
    for piece in (packed[:middle], packed[middle:]):
        data += frame(FrameType.DATA, 0, 1, piece)
    data += grpc_trailers(1)
    reads, at = [], 0
    for size in sizes:
        reads.append(data[at : at + size])
        at += size
    made = read(*reads, data[at:])
    assert text_and_stamps(made)[0] == "".join(messages)
    assert made.answer is not None
    assert made.answer.error is None


def h2_messages(stream: int, data: bytes) -> Sequence[bytes]:
    """What h2 makes of an answer to a call on this stream."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    fields = {":method": "POST", ":scheme": "http", ":path": "/p.S/M", ":authority": "h"}
    client.send_headers(stream, list(fields.items()), end_stream=True)
    cutter = MessageCutter()
    events = client.receive_data(data)
    pieces = [e.data for e in events if isinstance(e, h2.events.DataReceived)]
    assert [e for e in events if isinstance(e, h2.events.StreamEnded)]
    return [m for piece in pieces for m in cutter.feed(piece or b"")]


def test_padding_priority_and_continuations_are_read_as_h2_reads_them() -> None:
    block = hpack.Encoder().encode([(":status", "200"), ("content-type", "application/grpc")])
    data = (
        http2.settings()
        + frame(FrameType.HEADERS, 0x28, 1, b"\x02" + bytes(5) + block[:3] + bytes(2))
        + frame(FrameType.CONTINUATION, 0, 1, block[3:5])
        + frame(FrameType.CONTINUATION, END_HEADERS, 1, block[5:])
        + frame(FrameType.DATA, 0x8, 1, b"\x03" + pack_message(b"padded") + bytes(3))
        + grpc_data(1, b" whole")
        + grpc_trailers(1)
    )
    made = read(data)
    assert made.answer is not None
    assert made.answer.error is None
    assert made.answer.text == b"".join(h2_messages(1, data)).decode() == "padded whole"


def test_an_interim_head_is_passed_over() -> None:
    interim = hpack.Encoder().encode([(":status", "103"), ("link", "x")])
    made = read(frame(FrameType.HEADERS, END_HEADERS, 1, interim), grpc_head(1))
    assert made.head is not None
    assert made.head_s == 2.0
    assert "link" not in made.head.headers


@pytest.mark.parametrize(
    ("status", "said", "error", "message"),
    [
        (8, "queue%20full", ErrorClass.RATE_LIMITED, "8 (RESOURCE_EXHAUSTED): queue full"),
        (14, "", ErrorClass.HTTP_5XX, "14 (UNAVAILABLE)"),
        (13, "CUDA", ErrorClass.STREAM_ERROR, "13 (INTERNAL): CUDA"),
        (1, "", ErrorClass.STREAM_ERROR, "1 (CANCELLED)"),
        (77, "", ErrorClass.STREAM_ERROR, "77 (not known)"),
    ],
)
def test_a_status_that_is_not_ok_is_an_error_with_its_message(
    status: int, said: str, error: ErrorClass, message: str
) -> None:
    made = read(grpc_head(1) + grpc_data(1, b"a"), grpc_trailers(1, status, said))
    assert text_and_stamps(made) == ("a", [1.0])
    assert made.answer is not None
    assert made.answer.error is error
    assert made.answer.error_message == f"grpc-status {message}"
    assert made.answer.stream_end_s == 2.0


def test_trailers_only_are_head_and_end_at_once() -> None:
    flags = END_HEADERS | END_STREAM
    made = read(grpc_head(1, flags=flags, grpc_status="12", grpc_message="no%20such"))
    assert made.head is not None
    assert made.head.headers["grpc-status"] == "12"
    assert made.answer is not None
    assert made.answer.error_message == "grpc-status 12 (UNIMPLEMENTED): no such"
    assert not made.is_cut


@pytest.mark.parametrize(
    ("reads", "error", "message"),
    [
        (
            [grpc_head(1), frame(FrameType.DATA, END_STREAM, 1)],
            ErrorClass.STREAM_ERROR,
            "ended without a grpc-status",
        ),
        (
            [frame(FrameType.HEADERS, 5, 1, hpack.Encoder().encode([(":status", "503")]))],
            ErrorClass.HTTP_5XX,
            "HTTP status 503 and no grpc-status",
        ),
        (
            [frame(FrameType.HEADERS, 5, 1, hpack.Encoder().encode([(":status", "404")]))],
            ErrorClass.HTTP_4XX,
            "HTTP status 404 and no grpc-status",
        ),
        (
            [grpc_head(1) + frame(FrameType.DATA, 0, 1, b"\0\0\0\0\x09ab"), grpc_trailers(1)],
            ErrorClass.STREAM_ERROR,
            "ended inside a message",
        ),
        (
            [grpc_head(1) + frame(FrameType.DATA, 0, 1, b"\1\0\0\0\0")],
            ErrorClass.STREAM_ERROR,
            "a compressed message, and none was asked for",
        ),
        (
            [frame(FrameType.HEADERS, END_HEADERS, 1, b"\xbe")],
            ErrorClass.STREAM_ERROR,
            "headers that cannot be read",
        ),
        (
            [grpc_head(1), frame(FrameType.DATA, 0x8, 1, b"\xff")],
            ErrorClass.STREAM_ERROR,
            "a frame with more padding than payload",
        ),
    ],
)
def test_what_breaks_the_rules_is_an_error_and_nothing_is_raised(
    reads: list[bytes], error: ErrorClass, message: str
) -> None:
    made = read(*reads)
    assert made.answer is not None
    assert made.answer.error is error
    assert message in (made.answer.error_message or "")


@given(data=st.binary(max_size=200))
def test_garbage_raises_nothing_and_gives_no_text(data: bytes) -> None:
    made = read(http2.settings() + data)
    assert made.answer is None or made.answer.text == "" or b"\x00" in data


def test_a_cut_answer_says_so() -> None:
    assert read(grpc_head(1), grpc_data(1, b"a")).is_cut
    assert not read(http2.settings()).is_cut  # not even a head: nothing was promised


def test_a_server_that_keeps_a_table_is_read_in_the_order_of_its_connection() -> None:
    encoder = hpack.Encoder()
    fields = [(":status", "200"), ("content-type", "application/grpc"), ("server", "own")]
    blocks = [encoder.encode(fields) for _ in range(2)]
    assert len(blocks[1]) < len(blocks[0])  # it leans on the first
    tables = HeaderTables()
    for stream, block in zip((1, 3), blocks, strict=True):
        data = frame(FrameType.HEADERS, END_HEADERS, stream, block)
        made = read(data + grpc_data(stream, b"a") + grpc_trailers(stream), headers=tables.of(7))
        assert made.head is not None
        assert made.head.headers["server"] == "own"
        assert made.answer is not None
        assert made.answer.error is None
    lost = read(frame(FrameType.HEADERS, END_HEADERS, 3, blocks[1]), headers=tables.of(8))
    assert lost.answer is not None
    assert lost.answer.error is ErrorClass.STREAM_ERROR


def test_a_kept_answer_is_its_head_and_messages() -> None:
    data = http2.settings() + grpc_head(1, server="mii") + grpc_data(1, b"a", b"") + PING
    head, messages = read_grpc_answer(data + grpc_trailers(1))
    assert head is not None
    assert head.headers["server"] == "mii"
    assert messages == (b"a", b"")
    assert read_grpc_answer(data + grpc_trailers(1, 13)) == (None, (b"a", b""))
    assert read_grpc_answer(b"") == (None, ())
