"""Where a trace's bytes are, and how they are opened: unpacked, without a byte order mark."""

import codecs
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO

from harness.errors import ConfigError
from scenarios.traces.shipped import SHIPPED, Shipped

_GZIP = b"\x1f\x8b"  # RFC 1952, 2.3.1
_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A trace's file. `name`: for messages and facts, without its folder."""

    name: str
    place: Path
    shipped: Shipped | None = None

    def sha256(self) -> str:
        """SHA-256 of the file as it lies there, packed or not.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            with self.place.open("rb") as raw:
                return hashlib.file_digest(raw, "sha256").hexdigest()
        except OSError as error:
            raise _unreadable(self.name, error) from error


def find_source(path: str) -> Source:
    """The file of a trace, or the shipped trace of that name.

    Raises:
        ConfigError: neither is there.
    """
    shipped = SHIPPED.get(path)
    if shipped is not None:
        place = Path(__file__).parent / "data" / shipped.file
        return Source(name=path, place=place, shipped=shipped)
    file = Path(path).expanduser()
    if not file.is_file():
        what = "is a folder" if file.is_dir() else "no such file"
        raise ConfigError(
            f"load.trace.path={path}: {what}; give a file, or a trace that ships with bakeoff: "
            f"{', '.join(SHIPPED)}"
        )
    return Source(name=file.name, place=file)


@contextmanager
def opened(source: Source) -> Iterator[IO[bytes]]:
    """The bytes of a trace from its first character on; gzip is known by its first bytes.

    Raises:
        ConfigError: the file cannot be read, is damaged or is no UTF-8 text; also where that
            shows only while the caller reads.
    """
    name = source.name
    try:
        with source.place.open("rb") as raw:
            is_packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            with BufferedReader(gzip.open(raw)) if is_packed else nullcontext(raw) as stream:
                stream.seek(_text_begins(stream.read(_HEAD_BYTES), name))
                yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"trace {name}: its gzip data is cut off or damaged: {error}") from error
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ConfigError(
            f"trace {name}: byte 0x{byte:02x} is no UTF-8 text; save the file as UTF-8"
        ) from error
    except OSError as error:
        raise _unreadable(name, error) from error


def _text_begins(head: bytes, name: str) -> int:
    """Where the text begins in the file's first bytes: behind a UTF-8 byte order mark."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(f"trace {name}: is UTF-16 text; save the file as UTF-8")
    if b"\0" in head:
        raise ConfigError(f"trace {name}: is no text but binary data; give CSV or JSONL")
    return len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0


def _unreadable(name: str, error: OSError) -> ConfigError:
    return ConfigError(f"trace {name}: cannot be read: {error.strerror or error}")
