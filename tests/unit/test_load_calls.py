from dataclasses import replace
from pathlib import Path

import pytest

from harness.load.calls import Calls, Planned, PlannedCall, http_bytes, write_calls
from harness.types import HttpCall


def test_the_bytes_of_a_post_are_these() -> None:
    call = HttpCall(path="/v1/completions", headers={"x-mine": "1"}, body=b'{"a":1}')
    assert http_bytes(call, host="127.0.0.1:8000", request_id="17") == (
        b"POST /v1/completions HTTP/1.1\r\n"
        b"Host: 127.0.0.1:8000\r\n"
        b"User-Agent: bakeoff\r\n"
        b"Accept: text/event-stream, application/json\r\n"
        b"X-Request-Id: 17\r\n"
        b"Content-Length: 7\r\n"
        b"Content-Type: application/json\r\n"
        b"x-mine: 1\r\n"
        b"\r\n"
        b'{"a":1}'
    )


def test_a_get_has_no_content_type() -> None:
    data = http_bytes(HttpCall(method="GET", path="/health"), host="h:1", request_id="0")
    assert data.startswith(b"GET /health HTTP/1.1\r\n")
    assert b"Content-Type" not in data
    assert data.endswith(b"Content-Length: 0\r\n\r\n")


def test_a_header_of_the_adapter_replaces_ours_in_whatever_case() -> None:
    headers = {"content-type": "text/plain", "HOST": "other"}
    data = http_bytes(HttpCall(headers=headers, body=b"x"), host="h:1", request_id="0").lower()
    assert data.count(b"content-type:") == data.count(b"host:") == 1
    assert b"content-type: text/plain\r\n" in data
    assert b"host: other\r\n" in data


PLAIN = Planned(input_tokens=5, output_tokens=7)
FULL = Planned(
    input_tokens=1,
    output_tokens=2,
    prefix_tokens=3,
    session=0,
    turn=4,
    group="heavy",
    lora="b",
)


def test_written_calls_come_back_by_index(tmp_path: Path) -> None:
    calls = [
        PlannedCall(b"one", None, PLAIN),
        PlannedCall(b"", 0.5, FULL),
        PlannedCall(b"three" * 1000, 0.0, replace(FULL, group="light", lora=None)),
    ]
    assert write_calls(tmp_path, calls, first=100) == 3
    with Calls(tmp_path) as read:
        assert len(read) == 3
        for number in (2, 0, 1):
            data, due_s, planned = calls[number]
            assert read[100 + number] == (data, due_s)
            assert read.planned(100 + number) == planned
        assert [index in read for index in (99, 100, 102, 103)] == [False, True, True, False]


def test_calls_are_closed_with_their_context(tmp_path: Path) -> None:
    write_calls(tmp_path, [PlannedCall(b"one", None, PLAIN)])
    with Calls(tmp_path) as read:
        pass
    with pytest.raises(ValueError, match="closed"):
        _ = read[0]
