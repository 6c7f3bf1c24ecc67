import socket
import struct
import time
from collections.abc import Iterator

import pytest

from harness.load.wire import stamps

TIMESPEC = struct.Struct("@qq")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
        with sender, receiver:
            yield sender, receiver


def control(stamp_s: float) -> list[tuple[int, int, bytes]]:
    seconds = int(stamp_s)
    data = TIMESPEC.pack(seconds, round((stamp_s - seconds) * 1e9))
    return [(socket.SOL_SOCKET, stamps.SO_TIMESTAMPNS, data)]


def read(receiver: socket.socket) -> tuple[float, float, bool]:
    data, ancillary, _, _ = receiver.recvmsg(100, stamps.ANCILLARY_BYTES)
    assert data
    return stamps.arrival(ancillary)


def test_the_kernel_stamps_the_arrival_not_the_read(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sender, receiver = pair
    assert stamps.enable(receiver)
    for _ in range(50):  # the kernel starts stamping lazily
        sender.sendall(b"warm")
        if read(receiver)[2]:
            break
        time.sleep(0.01)
    before_s = time.monotonic()
    sender.sendall(b"x")
    after_s = time.monotonic()
    time.sleep(0.1)
    t_s, late_s, is_kernel = read(receiver)
    assert is_kernel
    assert before_s - 0.001 <= t_s <= after_s + 0.02
    assert 0.08 < late_s < 1.0


def test_a_socket_without_stamps_is_read_by_our_own_clock(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sender, receiver = pair
    sender.sendall(b"x")
    before_s = time.monotonic()
    t_s, late_s, is_kernel = read(receiver)
    assert (is_kernel, late_s) == (False, 0.0)
    assert before_s <= t_s <= time.monotonic()


def test_lateness_is_taken_off_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamps, "wall_clock", lambda: 1000.75)
    monkeypatch.setattr(stamps, "monotonic", lambda: 50.0)
    assert stamps.arrival(control(1000.5)) == (49.75, 0.25, True)


def test_a_pause_between_the_two_clocks_is_no_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    monotonic = iter([50.0, 50.1, 50.100001])  # interrupted for 100 ms after the first reading
    wall = iter([1000.85, 1000.85])
    monkeypatch.setattr(stamps, "monotonic", lambda: next(monotonic))
    monkeypatch.setattr(stamps, "wall_clock", lambda: next(wall))
    t_s, late_s, is_kernel = stamps.arrival(control(1000.5))
    assert (round(t_s, 9), round(late_s, 9), is_kernel) == (49.75, 0.35, True)


@pytest.mark.parametrize("wall_s", [999.9, 1061.0], ids=["stepped back", "stepped ahead"])
def test_a_step_of_the_wall_clock_falls_back_to_our_clock(
    monkeypatch: pytest.MonkeyPatch, wall_s: float
) -> None:
    monkeypatch.setattr(stamps, "wall_clock", lambda: wall_s)
    monkeypatch.setattr(stamps, "monotonic", lambda: 50.0)
    assert stamps.arrival(control(1000.0)) == (50.0, 0.0, False)


def test_foreign_or_cut_control_messages_are_no_stamps() -> None:
    foreign = (socket.SOL_SOCKET, 1, bytes(16))
    cut = (socket.SOL_SOCKET, stamps.SO_TIMESTAMPNS, bytes(8))
    for ancillary in ([], [foreign], [cut]):
        assert not stamps.arrival(ancillary)[2]
    assert stamps.arrival([foreign, *control(time.time())])[2]  # noqa: TID251


def test_where_the_kernel_cannot_stamp_enable_says_so() -> None:
    class Refusing:
        def setsockopt(self, *_: object) -> None:
            raise OSError(92, "Protocol not available")

    assert stamps.enable(Refusing()) is False
