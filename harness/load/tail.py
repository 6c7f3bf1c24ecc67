"""Reads a journal while it is still being written: what is whole so far, then what has come since.

The parent uses it to decide during a level (has this rate passed?) without touching the load
process, whose clock it must not disturb.
"""

from collections.abc import Iterator
from pathlib import Path

from harness.errors import StoreFormatError
from harness.load.journal import HEADER, MAGIC, Entry

_READ_BYTES = 1 << 20


class JournalTail:
    """The entries of a growing journal, each once. The file need not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def entries(self) -> Iterator[Entry]:
        """Whole entries written since the last call; StoreFormatError if it is no journal."""
        while data := self._read():
            self._rest += data
            if self._offset == len(data) and not self._strip_magic():
                return
            yield from self._whole()

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_READ_BYTES)
        except FileNotFoundError:
            return b""
        self._offset += len(data)
        return data

    def _strip_magic(self) -> bool:
        if len(self._rest) < len(MAGIC):
            self._offset, self._rest = 0, b""  # read it again when there is more
            return False
        if not self._rest.startswith(MAGIC):
            raise StoreFormatError(f"{self._path}: not a journal of this version")
        self._rest = self._rest[len(MAGIC) :]
        return True

    def _whole(self) -> Iterator[Entry]:
        data, at = self._rest, 0
        while at + HEADER.size <= len(data):
            kind, request, t_s, extra, size = HEADER.unpack_from(data, at)
            end = at + HEADER.size + size
            if end > len(data):
                break
            yield Entry(kind, request, t_s, extra, data[at + HEADER.size : end])
            at = end
        self._rest = data[at:]
