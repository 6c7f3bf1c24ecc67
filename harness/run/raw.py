"""What becomes of the raw journals once they have been decoded: kept, compressed, or dropped."""

from pathlib import Path

import pyarrow as pa

from harness.config import RawMode
from harness.errors import StoreWriteError

_BLOCK_BYTES = 1 << 20


def settle_raw(folder: Path, mode: RawMode) -> None:
    """Compress or drop the journals in `folder`; StoreWriteError if the disk refuses."""
    if mode is RawMode.KEEP:
        return
    try:
        for journal in sorted(folder.glob("journal*.bin")):
            if mode is RawMode.ZSTD:
                _compress(journal)
            journal.unlink()
    except OSError as error:
        raise StoreWriteError(f"{folder}: cannot be written: {error.strerror or error}") from error


def _compress(journal: Path) -> None:
    part = journal.with_name(f".{journal.name}.part")
    with journal.open("rb") as source, pa.CompressedOutputStream(str(part), "zstd") as target:
        while block := source.read(_BLOCK_BYTES):
            target.write(block)
    part.rename(journal.with_name(f"{journal.name}.zst"))
