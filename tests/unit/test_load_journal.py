import os
from pathlib import Path

import pytest

from harness.errors import StoreFormatError
from harness.load.journal import (
    HEADER,
    MAGIC,
    Entry,
    JournalWriter,
    Kind,
    json_payload,
    read_entries,
)


def test_nothing_is_on_disk_before_a_flush_and_all_of_it_after(tmp_path: Path) -> None:
    path = tmp_path / "journal.bin"
    journal = JournalWriter(path)
    journal.append(Kind.SENT, 3, 1.5)
    assert path.read_bytes() == b""
    journal.flush()
    assert path.read_bytes() == MAGIC + HEADER.pack(3, 3, 1.5, 0.0, 0)
    journal.append(Kind.READ, 3, 2.0, 0.25, b"abc")
    journal.close()
    assert list(read_entries(path)) == [
        Entry(Kind.SENT, 3, 1.5, 0.0, b""),
        Entry(Kind.READ, 3, 2.0, 0.25, b"abc"),
    ]


def test_the_header_is_25_bytes_little_endian() -> None:
    assert HEADER.size == 25
    assert HEADER.pack(4, 1, 1.0, 0.0, 2)[:5] == b"\x04\x01\x00\x00\x00"
    assert MAGIC == b"bakeoff journal 1\n"


def test_json_entries_come_back_as_objects(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / "j")
    journal.append_json(Kind.LEVEL, 9.0, 2, start_s=1.0, exhausted=False)
    journal.close()
    (entry,) = read_entries(tmp_path / "j")
    assert (entry.kind, entry.request, entry.t_s, entry.extra) == (Kind.LEVEL, 0, 9.0, 2.0)
    assert json_payload(entry) == {"start_s": 1.0, "exhausted": False}


def test_a_disk_that_refuses_is_kept_and_ends_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JournalWriter(tmp_path / "j")
    journal.append(Kind.SENT, 1, 1.0)
    journal.flush()
    whole = (tmp_path / "j").read_bytes()

    def full(_fd: int, _data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("harness.load.journal.os.write", full)
    journal.append(Kind.SENT, 2, 2.0)
    journal.flush()
    assert journal.error is not None
    assert journal.error.strerror == "No space left on device"
    monkeypatch.undo()
    journal.append(Kind.SENT, 3, 3.0)
    journal.close()  # a hole would be worse than an end
    assert (tmp_path / "j").read_bytes() == whole


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalWriter(tmp_path / "j")
    real_write = os.write
    monkeypatch.setattr(
        "harness.load.journal.os.write", lambda fd, data: real_write(fd, bytes(data[:7]))
    )
    journal.append(Kind.READ, 1, 1.0, 0.0, b"payload of some length")
    journal.close()
    assert [e.payload for e in read_entries(tmp_path / "j")] == [b"payload of some length"]


@pytest.mark.parametrize("content", [b"bakeoff journal 2\n", b"\x00" * 40])
def test_what_is_no_journal_of_this_version_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(StoreFormatError, match="not a journal of this version"):
        list(read_entries(path))


def test_a_journal_that_was_never_flushed_is_empty(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"")
    assert list(read_entries(tmp_path / "j")) == []


def test_put_holds_across_flushes(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / "j")
    put = journal.put
    for t_s in (1.0, 2.0):
        put(HEADER.pack(Kind.READ, 7, t_s, 0.5, 2))
        put(b"ab")
        journal.flush()
    journal.close()
    assert list(read_entries(tmp_path / "j")) == [
        Entry(Kind.READ, 7, 1.0, 0.5, b"ab"),
        Entry(Kind.READ, 7, 2.0, 0.5, b"ab"),
    ]


def test_a_full_disk_is_kept_as_the_error_and_nothing_more_is_written() -> None:
    journal = JournalWriter(Path("/dev/full"))
    journal.append(Kind.SENT, 1, 1.0)
    journal.flush()
    assert journal.error is not None
    assert journal.error.strerror == "No space left on device"
    journal.append(Kind.SENT, 2, 1.0)
    journal.flush()
    assert journal._parts == []  # a load that goes on must not fill the memory instead
    journal.close()
