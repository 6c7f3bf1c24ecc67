from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.load.job import Target
from harness.load.wire import secrets
from harness.load.wire.client import resolve
from harness.load.wire.secrets import masked, masker, scrub_folder, with_key
from harness.testing.loopback import loopback
from harness.testing.scripted import Script, ScriptedServer
from harness.types import Wire

KEY = "sk-secret-0123456789"
NAME = "BAKEOFF_TEST_KEY"
STARS = b"*" * len(KEY)


def said(body: bytes) -> bytes:
    return b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body


ECHO = said(f"invalid key {KEY}!".encode())
SCRIPTS: dict[str, Script] = {
    "/ok": (said(b"{}"),),
    "/echo": (ECHO,),
    "/echo-cut": (ECHO[:-8], 0.05, ECHO[-8:]),
}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(SCRIPTS) as running:
        yield running


@pytest.fixture
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, f"{KEY}\n")


@pytest.mark.usefixtures("_key")
def test_the_key_goes_over_the_wire_and_nowhere_else(
    tmp_path: Path, server: ScriptedServer
) -> None:
    with loopback(tmp_path, server.port, api_key_env=NAME) as load:
        for path in SCRIPTS:
            assert load.send(path).reason == "complete"
        assert load.body(1) == ECHO.replace(KEY.encode(), STARS)
        assert KEY.encode() not in load.body(2)
        assert len(load.body(2)) == len(ECHO)
    for seen in server.seen:
        lines = seen.head.split(b"\r\n")
        assert lines[0] == b"POST %s HTTP/1.1" % seen.path.encode()
        assert lines[1] == b"Authorization: Bearer " + KEY.encode()
    assert KEY.encode() not in load.path.read_bytes()


def test_without_a_key_nothing_is_added(tmp_path: Path, server: ScriptedServer) -> None:
    with loopback(tmp_path, server.port) as load:
        load.send("/ok")
    assert b"authorization" not in server.seen[0].head.lower()


def test_a_request_with_a_key_is_the_same_but_for_one_line() -> None:
    data = b"POST /x HTTP/1.1\r\nHost: h\r\n\r\n\r\nbody\r\n"
    assert with_key(data, b"k") == data.replace(b"Host", b"Authorization: Bearer k\r\nHost")
    assert with_key(data, b"") is data


def test_masks_are_as_long_as_what_they_mask() -> None:
    assert masked(b"a-key-b-key", b"key") == b"a-***-b-***"
    assert masked(b"nothing here", b"key") == b"nothing here"
    assert masked(b"anything", b"") == b"anything"
    assert masker(b"") is None


@given(
    st.lists(st.binary(max_size=5)), st.lists(st.integers(0, 60)), st.sampled_from([b"aab", b"k"])
)
def test_pieces_of_any_size_never_join_to_the_key(
    parts: list[bytes], cuts: list[int], key: bytes
) -> None:
    data = key.join(parts)
    mask = masker(key)
    assert mask is not None
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [mask(data[a:b]) for a, b in pairwise(edges)]
    joined = b"".join(pieces)
    assert len(joined) == len(data)
    assert key not in joined


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, f"launch.api_key_env={NAME}: not in the environment; run: export {NAME}"),
        (" ", f"launch.api_key_env={NAME}: not in the environment; run: export {NAME}"),
        (
            "two\nlines",
            f"launch.api_key_env={NAME}: a key has printable ASCII characters only",
        ),
        (
            "text",
            (
                f"launch.api_key_env={NAME}: a key of 4 letters cannot be told from the text "
                "around it, and so not be kept out of what is written; it must have at least 8"
            ),
        ),
    ],
)
def test_a_key_that_cannot_be_sent_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str | None, message: str
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    if value is not None:
        monkeypatch.setenv(NAME, value)
    with pytest.raises(ConfigError) as caught:
        resolve(Target(host="127.0.0.1", port=1, api_key_env=NAME))
    assert str(caught.value) == message


@pytest.mark.usefixtures("_key")
def test_a_key_for_grpc_is_refused() -> None:
    with pytest.raises(ConfigError, match="without TLS and without a key"):
        resolve(Target(host="127.0.0.1", port=1, api_key_env=NAME, wire=Wire.GRPC))


def test_tls_for_grpc_is_refused_and_not_left_out() -> None:
    with pytest.raises(ConfigError, match="without TLS and without a key"):
        resolve(Target(host="127.0.0.1", port=1, is_tls=True, wire=Wire.GRPC))


def test_a_folder_is_scrubbed_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_BLOCK_BYTES", 7)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    text = f"x{KEY}{KEY} and {KEY}".encode()
    (deep / "log").write_bytes(text)
    (tmp_path / "other").write_bytes(b"pw=hunter2\n")
    (tmp_path / "clean").write_bytes(b"nothing" * 100)
    (tmp_path / "link").symlink_to(deep / "log")
    before = (tmp_path / "clean").stat().st_mtime_ns
    assert scrub_folder(tmp_path, [KEY, b"hunter2", ""]) == 4
    assert (deep / "log").read_bytes() == text.replace(KEY.encode(), STARS)
    assert (tmp_path / "other").read_bytes() == b"pw=*******\n"
    assert (tmp_path / "clean").stat().st_mtime_ns == before
    assert scrub_folder(tmp_path, [KEY]) == 0


def test_a_key_that_holds_another_is_masked_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abcdef abc")
    assert scrub_folder(tmp_path, ["abc", "abcdef"]) == 2
    assert (tmp_path / "f").read_bytes() == b"****** ***"
