"""An API key stays in memory: it is put into a request as it is sent, and masked in all else."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.errors import ConfigError

_BLOCK_BYTES = 1 << 20
_LEAST_LETTERS = 8  # a shorter key stands in ordinary text, which masking it would destroy


def read_key(variable: str) -> str:
    """The key in this variable of the environment; empty for no variable's name.

    ConfigError for a key that is not there, or that can be neither sent nor kept secret.
    """
    if not variable:
        return ""
    key, where = os.environ.get(variable, "").strip(), f"launch.api_key_env={variable}"
    if not key:
        raise ConfigError(f"{where}: not in the environment; run: export {variable}")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{where}: a key has printable ASCII characters only")
    if len(key) < _LEAST_LETTERS:
        raise ConfigError(
            f"{where}: a key of {len(key)} letters cannot be told from the text around it, and so "
            f"not be kept out of what is written; it must have at least {_LEAST_LETTERS}"
        )
    return key


def with_key(data: bytes, key: bytes) -> bytes:
    """An HTTP request with the key as its bearer token, put behind the request line."""
    if not key:
        return data
    line, end, rest = data.partition(b"\r\n")
    return b"".join((line, end, b"Authorization: Bearer ", key, b"\r\n", rest))


def masked(data: bytes, key: bytes) -> bytes:
    """The bytes with stars in place of each occurrence of the key; as long as before."""
    return data.replace(key, b"*" * len(key)) if key else data


def masked_text(text: str, key: str) -> str:
    """The same for text."""
    return masked(text.encode(), key.encode()).decode()


def masker(key: bytes) -> Callable[[bytes], bytes] | None:
    """A function that masks one piece of a stream after another; None if there is no key.

    A key that is cut by the end of a piece is masked in the second piece, so that joining the
    pieces does not show it.
    """
    if not key:
        return None
    last = b""

    def mask(data: bytes) -> bytes:
        nonlocal last
        joined = masked(last + data, key)
        masked_data = joined[len(last) :]
        last = joined[max(0, len(joined) - len(key) + 1) :]
        return masked_data

    return mask


def scrub_folder(folder: Path, keys: Iterable[bytes | str]) -> int:
    """Mask every key in every file below a folder, in place; gives the number of occurrences.

    Files keep their length, and their times unless something was found. Links are not followed.
    What is compressed is not looked into: keys have to be masked before it is.
    """
    wanted = [key.encode() if isinstance(key, str) else key for key in keys]
    wanted = sorted((key for key in wanted if key), key=len, reverse=True)
    count = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            if wanted and path.is_file() and not path.is_symlink():
                count += sum(_scrub_file(path, key) for key in wanted)
    return count


def _scrub_file(path: Path, key: bytes) -> int:
    found = list(_places(path, key))
    if found:
        with path.open("r+b") as file:
            for place in found:
                file.seek(place)
                file.write(b"*" * len(key))
    return len(found)


def _places(path: Path, key: bytes) -> Iterable[int]:
    """Where the key is in a file; blocks overlap by a byte less than the key."""
    with path.open("rb") as file:
        begin, rest = 0, b""
        while block := file.read(_BLOCK_BYTES):
            data, found, end = rest + block, -1, 0
            while (found := data.find(key, end)) >= 0:
                yield begin + found
                end = found + len(key)
            keep = max(end, len(data) - len(key) + 1)
            begin, rest = begin + keep, data[keep:]
