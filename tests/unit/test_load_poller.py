import socket
from collections.abc import Iterator

import gevent
import pytest

from harness.load.wire.poller import READ_BYTES, Ancillary, Poller
from harness.load.wire.stamps import Clocks


@pytest.fixture
def poller() -> Iterator[Poller]:
    made = Poller()
    yield made
    made.close()


class Reader:
    """A socket that is read by the poller; `got`: its reads."""

    def __init__(self, poller: Poller) -> None:
        self.peer, self.sock = socket.socketpair()
        self.sock.settimeout(0.0)
        self.got: list[bytes] = []
        self.errors: list[OSError] = []
        self.poller = poller
        poller.listen(self.sock, self.take, self.errors.append)

    def take(self, data: bytes, _: Ancillary, __: Clocks) -> None:
        self.got.append(data)

    def close(self) -> None:
        self.poller.drop(self.sock)
        self.sock.close()
        self.peer.close()


@pytest.fixture
def reader(poller: Poller) -> Iterator[Reader]:
    made = Reader(poller)
    yield made
    made.close()


def wait(seconds: float = 0.03) -> None:
    gevent.sleep(seconds)


def test_what_comes_is_read_once(poller: Poller, reader: Reader) -> None:
    for data in (b"a", b"b"):
        reader.peer.sendall(data)
        wait()
    assert reader.got == [b"a", b"b"]
    assert poller.reads == 2


def test_the_end_is_read_behind_the_bytes_it_came_with(reader: Reader) -> None:
    reader.peer.sendall(b"last")
    reader.peer.close()
    wait()
    assert reader.got == [b"last", b""]


def test_more_than_one_read_holds_is_read_to_its_end(reader: Reader) -> None:
    data = bytes(range(256)) * (READ_BYTES // 256)  # full reads, so that none of them looks last
    reader.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * READ_BYTES)
    reader.peer.settimeout(0.0)
    sent = reader.peer.send(data * 3)
    wait()
    assert b"".join(reader.got) == (data * 3)[:sent]


def test_what_came_before_somebody_listens_is_read(poller: Poller) -> None:
    peer, sock = socket.socketpair()
    with peer, sock:
        sock.settimeout(0.0)
        peer.sendall(b"early")
        got: list[bytes] = []
        poller.listen(sock, lambda data, *_: got.append(data), lambda _: None)
        wait()
        assert got == [b"early"]
        poller.drop(sock)


def test_the_next_listener_gets_what_comes_next(poller: Poller, reader: Reader) -> None:
    reader.peer.sendall(b"first")
    wait()
    got: list[bytes] = []
    poller.listen(reader.sock, lambda data, *_: got.append(data), lambda _: None)
    reader.peer.sendall(b"second")
    wait()
    assert (reader.got, got) == ([b"first"], [b"second"])


def test_nothing_is_read_of_a_dropped_socket(poller: Poller, reader: Reader) -> None:
    poller.drop(reader.sock)
    poller.drop(reader.sock)
    reader.peer.sendall(b"x")
    wait()
    assert reader.got == []


def test_a_broken_socket_is_told_as_an_error(poller: Poller) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    with sock:
        sock.settimeout(0.0)
        errors: list[OSError] = []
        poller.listen(sock, lambda *_: None, errors.append)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        wait()
        assert [type(error) for error in errors] == [ConnectionResetError]
        poller.drop(sock)


def test_by_the_clock_it_reads_what_has_gathered(poller: Poller, reader: Reader) -> None:
    poller.read_every(0.2)
    reader.peer.sendall(b"a")
    wait()
    assert reader.got == []
    reader.peer.sendall(b"b")
    wait(0.3)
    assert reader.got == [b"ab"]
    poller.read_every(None)
    reader.peer.sendall(b"c")
    wait()
    assert reader.got == [b"ab", b"c"]


def test_one_listener_may_drop_another_that_is_ready_too(poller: Poller) -> None:
    readers = [Reader(poller) for _ in range(2)]

    def drop_all(*_: object) -> None:
        for one in readers:
            poller.drop(one.sock)

    for one in readers:
        poller.listen(one.sock, drop_all, drop_all)
        one.peer.sendall(b"x")
    wait()
    assert not poller._listeners
    for one in readers:
        one.close()
