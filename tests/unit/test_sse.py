import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sse import SseParser


def parsed(*pieces: bytes, limit: int = 1 << 20) -> list[bytes]:
    parser = SseParser(limit)
    payloads = [payload for piece in pieces for payload in parser.feed(piece)]
    return payloads + parser.end()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_ends_a_line(end: bytes) -> None:
    stream = b"data: a" + end + end + b"data:b" + end + end
    assert parsed(stream) == [b"a", b"b"]


def test_a_cr_ends_its_line_at_once_and_the_lf_of_the_next_read_is_its_own() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n\r") == [b"a"]
    assert parser.feed(b"\ndata: b\r") == []
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\r\n") == [b"b"]


def test_comments_other_fields_and_empty_data_give_nothing() -> None:
    assert parsed(b":\n\n: ping\n\nid: 7\nevent: message\nretry: 1\ndata: x\n\ndata:\n\n") == [b"x"]
    assert parsed(b"data\n\ndata: \n\nnonsense\n\n") == []


def test_just_one_space_after_the_colon_is_taken_off() -> None:
    assert parsed(b"data:  x \n\n") == [b" x "]


def test_several_data_lines_are_joined() -> None:
    assert parsed(b"data: {\ndata: }\n\n") == [b"{\n}"]


def test_a_bom_is_taken_off_once() -> None:
    assert parsed(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]


def test_an_event_without_its_blank_line_is_given_at_the_end() -> None:
    assert parsed(b"data: a\n\ndata: b") == [b"a", b"b"]
    assert parsed(b"data: a\n") == [b"a"]
    assert parsed(b"data: a\n\n") == [b"a"]


def test_a_character_cut_between_reads_stays_whole() -> None:
    parser = SseParser()
    assert parser.feed("data: 中".encode()[:-1]) == []
    assert parser.feed("中".encode()[-1:] + b"\n\n") == ["中".encode()]


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 40, b"data: " + b"x" * 40 + b"\n"])
def test_an_event_above_the_bound_overflows_and_ends_the_parse(piece: bytes) -> None:
    parser = SseParser(max_event_bytes=100)
    assert parser.feed(b"data: a\n\n" + piece) == [b"a"]
    assert not parser.overflowed
    assert parser.feed(piece) == []
    assert parser.feed(piece) == []
    assert parser.overflowed
    assert parser.feed(b"\n\ndata: b\n\n") == []
    assert parser.end() == []


def test_many_small_events_do_not_overflow() -> None:
    parser = SseParser(max_event_bytes=100)
    payloads = [p for _ in range(200) for p in parser.feed(b"data: abcdefgh\ndata: i\n\nda")]
    assert len(payloads) == 200
    assert not parser.overflowed


@given(st.lists(st.sampled_from([b"data: x", b"data:", b"\r", b"\n", b"\r\n", b":", b"y"])))
def test_cuts_make_no_difference(parts: list[bytes]) -> None:
    stream = b"".join(parts)
    assert parsed(*(bytes((b,)) for b in stream)) == parsed(stream)
