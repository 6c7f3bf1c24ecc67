from pathlib import Path

import pytest

from harness.load.calls import Calls, http_bytes, write_calls
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


def test_written_calls_come_back_by_index(tmp_path: Path) -> None:
    calls = [(b"one", None), (b"", 0.5), (b"three" * 1000, 0.0)]
    assert write_calls(tmp_path, calls) == 3
    with Calls(tmp_path) as read:
        assert len(read) == 3
        assert [tuple(read[i]) for i in (2, 0, 1)] == [calls[2], calls[0], calls[1]]


def test_calls_are_closed_with_their_context(tmp_path: Path) -> None:
    write_calls(tmp_path, [(b"one", None)])
    with Calls(tmp_path) as read:
        pass
    with pytest.raises(ValueError, match="closed"):
        _ = read[0]
