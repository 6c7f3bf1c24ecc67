"""A journal read while it grows: every entry once, whatever was written so far."""

from pathlib import Path

import pytest

from harness.errors import StoreFormatError
from harness.load.journal import JournalWriter, Kind, read_entries
from harness.load.tail import JournalTail


def test_every_entry_comes_once_wherever_the_file_ends(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "whole.bin")
    for number in range(20):
        writer.append(Kind.READ, number, float(number), 0.5, b"x" * number)
    writer.close()
    whole = (tmp_path / "whole.bin").read_bytes()
    growing = tmp_path / "journal.bin"
    tail = JournalTail(growing)
    assert list(tail.entries()) == []  # not there yet
    found = []
    for end in range(1, len(whole) + 1, 7):
        growing.write_bytes(whole[:end])
        found += list(tail.entries())
    growing.write_bytes(whole)
    found += list(tail.entries())
    assert found == list(read_entries(tmp_path / "whole.bin"))
    assert len(found) == 20
    assert list(tail.entries()) == []


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.bin").write_bytes(b"something else, longer than the magic")
    with pytest.raises(StoreFormatError, match="not a journal of this version"):
        list(JournalTail(tmp_path / "journal.bin").entries())
