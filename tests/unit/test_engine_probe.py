import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.engine.ports import free_port
from harness.engine.probe import MAX_BODY_BYTES, Answer, Endpoint, NoAnswer, ProbeConnection, call
from harness.errors import ConfigError
from harness.types import HttpCall

GET = HttpCall(method="GET", path="/health")
PATIENT_S = 20.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok"


@contextmanager
def server(*answers: bytes, pause_s: float = 0.0) -> Iterator[tuple[str, list[bytes]]]:
    """One answer a connection, as raw bytes; gives its URL and the requests that it got."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def play() -> None:
            for answer in answers:
                peer, _ = listener.accept()
                with peer:
                    seen.append(peer.recv(65536))
                    if seen[-1].startswith(b"POST") and seen[-1].endswith(b"\r\n\r\n"):
                        seen[-1] += peer.recv(65536)
                    time.sleep(pause_s)
                    peer.sendall(answer)

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
        thread.join(5)


def test_an_answer_with_status_headers_and_body() -> None:
    body = b'{"a":1}'
    with server(OK) as (url, seen):
        answer = call(
            Endpoint(url + "/base/"), HttpCall(path="/v1/x", headers={"X-K": "v"}, body=body), 2
        )
    assert isinstance(answer, Answer)
    assert (answer.head.status, answer.head.headers["x-a"], answer.body) == (200, "b", b"ok")
    assert seen[0].startswith(b"POST /base/v1/x HTTP/1.1\r\n")
    assert b"X-K: v\r\n" in seen[0]
    assert seen[0].endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":{"code":503,"message":"Loading model"}}', "503 Loading model"),
        (b'{"error":"overloaded","error_type":"x"}', "503 overloaded"),
        (b'{"detail":"Not Found"}', "503 Not Found"),
        (b"busy\nmore", "503 busy more"),
        (
            b"<!DOCTYPE html>\n<html><head><title>503 Service\n Unavailable</title></head>",
            "503 a page of HTML, as of a proxy: 503 Service Unavailable",
        ),
        (b"<html><body>busy", "503 a page of HTML, as of a proxy: without a title"),
        (b"", "503"),
    ],
)
def test_an_error_answer_in_words(body: bytes, words: str) -> None:
    head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n" % len(body)
    with server(head + body) as (url, _):
        assert str(call(Endpoint(url), GET, 2)) == words


def test_a_compressed_answer_is_read_and_a_bomb_is_cut() -> None:
    for encoding, plain in (("gzip", b"Incorrect API key"), ("GZIP", b"x" * (MAX_BODY_BYTES + 9))):
        packed = gzip.compress(plain)
        head = f"HTTP/1.1 401 X\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(packed)}"
        with server(head.encode() + b"\r\n\r\n" + packed) as (url, _):
            answer = call(Endpoint(url), GET, PATIENT_S)
        assert isinstance(answer, Answer)
        assert answer.body == plain[:MAX_BODY_BYTES]


def test_no_answer_is_a_value_with_its_reason() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert call(Endpoint(url), GET, 2) == NoAnswer(reason="connection refused")
    with server(b"") as (url, _):
        assert call(Endpoint(url), GET, 2) == NoAnswer(reason="connection closed without an answer")
    with server(b"garbage\r\n\r\n") as (url, _):
        assert str(call(Endpoint(url), GET, 2)).startswith("not HTTP: BadStatusLine")
    with server(OK, pause_s=0.6) as (url, _):
        assert call(Endpoint(url), GET, 0.2) == NoAnswer(reason="no answer in time")
    with server(OK[:-1]) as (url, _):
        assert str(call(Endpoint(url), GET, 2)).startswith("not HTTP: IncompleteRead")


def test_a_redirect_is_an_answer_and_not_followed() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    with server(moved) as (url, _):
        answer = call(Endpoint(url), GET, 2)
    assert isinstance(answer, Answer)
    assert (answer.head.status, answer.is_ok) == (302, False)


def test_proxy_settings_of_the_user_do_not_touch_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with server(OK) as (url, _):
        assert isinstance(call(Endpoint(url), GET, 2), Answer)


def test_a_kept_connection_that_the_server_closed_is_opened_again() -> None:
    with server(OK, OK) as (url, seen), ProbeConnection(Endpoint(url)) as connection:
        for _ in range(2):
            assert isinstance(connection.call(GET, 2), Answer)
            time.sleep(0.05)
    assert len(seen) == 2


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://", "http://a:b"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match=r"must be http://HOST:PORT|not a URL"):
        call(Endpoint(url), GET, 1)


def test_a_key_is_sent_and_never_shown() -> None:
    with server(OK) as (url, seen):
        endpoint = Endpoint(url, api_key="sk-secret")
        assert isinstance(call(endpoint, GET, 2), Answer)
    assert "sk-secret" not in repr(endpoint)
    assert b"Authorization: Bearer sk-secret" in seen[0]


def test_a_probe_may_ask_the_port_beside() -> None:
    with server(OK) as (first, _):
        base = int(first.rpartition(":")[2])
        with server(OK) as (second, seen):
            offset = int(second.rpartition(":")[2]) - base
            beside = HttpCall(method="GET", path="/metrics", port_offset=offset)
            with ProbeConnection(Endpoint(first + "/base", api_key="k")) as connection:
                answer = connection.call(beside, 2)
                assert isinstance(answer, Answer), answer
        assert seen[0].startswith(b"GET /metrics HTTP/1.1\r\n")
        assert b"Authorization: Bearer k\r\n" in seen[0]
        assert isinstance(call(Endpoint(first), GET, 2), Answer)


def test_an_answer_that_is_held_back_on_purpose_is_waited_for() -> None:
    with server(OK, pause_s=0.4) as (url, _):
        held = HttpCall(method="GET", path="/metrics", hold_s=PATIENT_S)
        assert isinstance(call(Endpoint(url), held, 0.1), Answer)
