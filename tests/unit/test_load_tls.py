"""TLS over real sockets: plain bytes with the kernel's stamps, certificates, endings."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from harness.calibrate.server.tls import CERTIFICATE
from harness.load.journal import Kind
from harness.load.wire.tls import TlsStream, tls_settings
from harness.testing.loopback import loopback
from harness.testing.scripted import InTurn, Script, ScriptedServer, Step

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = bytes(range(256)) * 400  # seven records


def context(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(CERTIFICATE)
    made.minimum_version = made.maximum_version = version
    return made


SCRIPTS: dict[str, Script | InTurn] = {
    "/chunked": (CHUNKED + b"1\r\na\r\n", 0.03, b"1\r\nb\r\n", 0.03, b"0\r\n\r\n"),
    "/long": (OK + b"Content-Length: %d\r\n\r\n" % len(LONG) + LONG,),
    "/until-close": (OK + b"\r\nto the end", Step.CLOSE),
    "/cut": (CHUNKED + b"1\r\na\r\n", Step.CLOSE),
    "/reset": (CHUNKED, Step.RESET),
    "/silent": (Step.HANG,),
}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(SCRIPTS, tls=context()) as running:
        yield running


@pytest.fixture
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_trusted_server_is_read_with_the_kernels_stamps(
    tmp_path: Path, version: ssl.TLSVersion, host: str
) -> None:
    with (
        ScriptedServer(SCRIPTS, tls=context(version)) as server,
        loopback(tmp_path, server.port, host=host, is_tls=True) as load,
    ):
        for _ in range(3):  # the kernel begins to stamp with the first socket that asks for it
            ended = load.send("/chunked", keep=True)
            assert (ended.reason, ended.status, ended.pieces) == ("complete", 200, (b"ab",))
        assert load.body(2) == CHUNKED + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"
        reads = load.entries(Kind.READ, 2)
        assert len(reads) == 3
        gaps_s = [b.t_s - a.t_s for a, b in pairwise(reads)]
        assert all(0.02 < gap_s < 0.5 for gap_s in gaps_s)
        (connected,) = load.entries(Kind.CONNECTED)
        assert connected.extra > 0
        assert load.client.stats.connects == 1


@pytest.mark.usefixtures("_trusted")
def test_long_answers_and_long_requests(tmp_path: Path, server: ScriptedServer) -> None:
    with loopback(tmp_path, server.port, is_tls=True) as load:
        ended = load.send("/long", body=b"x" * 1_000_000, keep=True)
        assert ended.pieces == (LONG,)
        assert ended.reason == "complete"


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/until-close", "complete"),
        ("/cut", "eof"),
        ("/reset", "reset: "),
        ("/silent", "timeout: no end after 0.5 s"),
    ],
)
def test_endings(tmp_path: Path, server: ScriptedServer, path: str, reason: str) -> None:
    with loopback(tmp_path, server.port, is_tls=True, timeout_s=0.5) as load:
        assert load.send(path).reason.startswith(reason)
        assert load.send("/long").reason == "complete"


def test_a_certificate_that_nobody_signed_is_refused_in_one_sentence(
    tmp_path: Path, server: ScriptedServer
) -> None:
    with loopback(tmp_path, server.port, is_tls=True) as load:
        ended = load.send("/chunked")
    assert ended.reason == (
        "connect: certificate not accepted: self-signed certificate "
        "(launch.tls_verify=false takes any)"
    )
    assert server.seen == []


@pytest.mark.usefixtures("_trusted")
def test_a_certificate_for_another_name_is_refused(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = [(2, 1, 6, "", ("127.0.0.1", server.port))]
    monkeypatch.setattr("gevent.socket.getaddrinfo", lambda *_, **__: address)
    with loopback(tmp_path, server.port, host="other.test", is_tls=True) as load:
        ended = load.send("/chunked")
    assert ended.reason.startswith("connect: certificate not accepted: Hostname mismatch")


def test_any_certificate_is_taken_if_that_is_asked_for(
    tmp_path: Path, server: ScriptedServer
) -> None:
    with loopback(tmp_path, server.port, is_tls=True, tls_verify=False) as load:
        assert load.send("/chunked").reason == "complete"


def test_a_server_without_tls_is_told_from_one_with(tmp_path: Path) -> None:
    with (
        ScriptedServer({}) as server,
        loopback(tmp_path, server.port, is_tls=True, timeout_s=1.0) as load,
    ):
        reason = load.send("/x").reason
    assert reason.startswith(("connect: ", "timeout: "))


def test_a_handshake_that_is_not_answered_ends_at_the_limit(tmp_path: Path) -> None:
    script: dict[str, Script] = {}
    with ScriptedServer(script, tls=context()) as silent:
        silent._tls = None  # accepts and waits for a request that never comes in clear text
        with loopback(tmp_path, silent.port, is_tls=True, timeout_s=0.3) as load:
            ended = load.send("/x")
            assert ended.reason == "timeout: no end after 0.3 s"
            assert load.entries(Kind.CONNECTED) == []


def pair() -> tuple[TlsStream, ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """A client's stream and its server, in memory, after the handshake."""
    stream = tls_settings("localhost", verify=False).stream()
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context().wrap_bio(to_server, to_client, server_side=True)
    is_done = False
    while not is_done:
        is_done = stream.shake_hands()
        to_server.write(stream.take_outgoing())
        with suppress(ssl.SSLWantReadError):
            server.do_handshake()
        if not is_done:
            stream.take_incoming(to_client.read())
    return stream, server, to_server, to_client


def test_records_cut_at_any_byte_come_out_when_they_are_whole() -> None:
    stream, server, _, to_client = pair()
    server.write(b"first")
    first = to_client.read()  # with the session tickets before it
    server.write(b"second")
    data = first + to_client.read()
    out = [stream.decrypt(data[i : i + 1]) for i in range(len(data))]
    assert [piece for piece in out if piece] == [b"first", b"second"]
    assert out[len(first) - 1] == b"first"


def test_several_records_in_one_read_come_out_together() -> None:
    stream, server, _, to_client = pair()
    for piece in (b"one ", b"two ", b"three"):
        server.write(piece)
    assert stream.decrypt(to_client.read()) == b"one two three"
    assert not stream.is_ended


def test_the_servers_farewell_is_an_end_also_behind_its_last_words() -> None:
    stream, server, to_server, to_client = pair()
    server.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        server.unwrap()
    assert stream.decrypt(to_client.read()) == b"last words"
    assert stream.is_ended
    to_server.write(stream.encrypt(b"") + stream.farewell())
    with pytest.raises(ssl.SSLZeroReturnError):
        server.read()


def test_what_is_no_tls_is_an_error() -> None:
    stream, _, _, _ = pair()
    with pytest.raises(ssl.SSLError):
        stream.decrypt(b"HTTP/1.1 200 OK\r\n\r\n")
