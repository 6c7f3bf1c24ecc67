"""An answer that breaks off or turns to garbage at any byte: one end, in time, and no spinning."""

import time
from itertools import product
from pathlib import Path

import gevent
import pytest

from harness.load.journal import Kind
from harness.testing.loopback import Loopback, loopback
from harness.testing.scripted import Script, ScriptedServer, Step

CHUNKED = (
    b"HTTP/1.1 103 Early\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n"
    b"6\r\ndata: \r\n2;a=b\r\n{}\r\n0\r\nT: r\r\n\r\n"
)
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"
BODILESS = b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nuntil the end"
GARBAGE = b"\xff\x00\r\nnot http\r\n\r\n"
ANSWERS = {"chunked": CHUNKED, "sized": SIZED, "bodiless": BODILESS}
ENDS: dict[str, Script] = {
    "close": (Step.CLOSE,),
    "reset": (Step.RESET,),
    "garbage": (GARBAGE, Step.CLOSE),
    "pause": (0.0,),
}
TOGETHER = 40
TIMEOUT_S = 5.0


def script(name: str, end: str, cut: int) -> Script:
    answer = ANSWERS[name]
    if end == "pause":  # in two pieces, nothing missing
        rest: Script = (Step.CLOSE,) if name == "bodiless" else ()
        return (answer[:cut], 0.002, answer[cut:], *rest)
    return (answer[:cut], *ENDS[end])


def send_in_rounds(load: Loopback, paths: list[str]) -> list[tuple[str, str, int]]:
    """All paths, some at a time; each with its reason and status."""
    ended = []
    for begin in range(0, len(paths), TOGETHER):
        batch = paths[begin : begin + TOGETHER]
        for path, one in zip(batch, load.send_together(*batch), strict=True):
            ended.append((path, one.reason, one.status))
    return ended


@pytest.mark.parametrize(("name", "end"), list(product(ANSWERS, ENDS)))
def test_an_answer_cut_at_any_byte_ends_once(tmp_path: Path, name: str, end: str) -> None:
    cuts = range(len(ANSWERS[name]) + 1)
    scripts = {f"/{cut}": script(name, end, cut) for cut in cuts}
    with (
        ScriptedServer(scripts) as server,
        loopback(tmp_path, server.port, timeout_s=TIMEOUT_S) as load,
    ):
        ended = send_in_rounds(load, list(scripts))
        ends = load.entries(Kind.END)
    assert sorted(entry.request for entry in ends) == list(cuts)
    assert [path for path, _, _ in ended] == list(scripts)
    reasons = [reason for _, reason, _ in ended]
    assert {reason.split(":")[0] for reason in reasons} <= {"complete", "eof", "reset", "garbage"}
    is_whole = [reason == "complete" for reason in reasons]
    if end == "pause":
        assert all(is_whole)
    elif name == "bodiless":  # its end is the end of the connection, wherever that is
        head = len(BODILESS) - len(b"until the end")
        if end in {"close", "garbage"}:
            assert is_whole[head:] == [True] * (len(cuts) - head)
        assert not any(is_whole[: head - 1])
    elif (name, end) == ("sized", "garbage"):  # garbage is a body too, where one is due
        assert is_whole == [cut >= SIZED.index(b"body") for cut in cuts]
    else:
        assert not any(is_whole[:-1])
        assert is_whole[-1] or end == "reset"  # a reset may overtake what is not yet read


@pytest.mark.parametrize("name", ["chunked", "sized"])
def test_an_answer_that_stops_at_any_byte_runs_into_the_limit(tmp_path: Path, name: str) -> None:
    cuts = range(len(ANSWERS[name]))
    scripts: dict[str, Script] = {f"/{cut}": (ANSWERS[name][:cut], Step.HANG) for cut in cuts}
    with (
        ScriptedServer(scripts) as server,
        loopback(tmp_path, server.port, timeout_s=1.0) as load,
    ):
        sending = gevent.spawn(load.send_together, *scripts)
        while len(load.entries(Kind.READ)) + len(load.entries(Kind.READ_USER)) < len(cuts) - 1:
            gevent.sleep(0.02)
        begin_s, cpu_s = time.monotonic(), time.thread_time()
        gevent.sleep(0.2)
        assert time.thread_time() - cpu_s < 0.5 * (time.monotonic() - begin_s)  # nothing spins
        ended = sending.get()
        assert len(load.entries(Kind.END)) == len(cuts)
    assert {one.reason for one in ended} == {"timeout: no end after 1.0 s"}
    assert {one.status for one in ended} == {0, 200}
