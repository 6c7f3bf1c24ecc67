"""What master and workers say to each other: plain values as MessagePack, checked on arrival.

A remote worker has no file of the master's: it asks for what it needs piece by piece, and hands
over its tables in the same way, so that nothing piles up in a queue that would drop it.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, TypeAlias

import msgspec

from harness.load.job import LevelsJob, LoadJob

PIECE_BYTES = 1024 * 1024


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One message; its kind travels as its tag."""


class Hello(_Message, frozen=True, kw_only=True):
    """A worker's first word. `place`: its number, from the master that started it."""

    version: str
    host: str
    pid: int
    place: int | None = None


class Welcome(_Message, frozen=True, kw_only=True):
    """The worker belongs to the load now, with this number of so many (`job.workers`)."""

    worker: int
    job: LoadJob


class Refused(_Message, frozen=True, kw_only=True):
    """The worker is not wanted, and why."""

    reason: str


class Trouble(_Message, frozen=True, kw_only=True):
    """The worker cannot go on."""

    exit_code: int
    reason: str


class Ready(_Message, frozen=True, kw_only=True):
    """The worker has what was sent last: its job (`number` None), or the calls of levels."""

    number: int | None = None


class Prepare(_Message, frozen=True, kw_only=True):
    """Levels that come next; `files`: small files of the calls' folder, for a remote worker."""

    levels: LevelsJob
    files: Mapping[str, bytes]


class Piece(_Message, frozen=True, kw_only=True):
    """Bytes of calls, by index; the last piece has `is_last`."""

    data: Sequence[tuple[int, bytes]]
    is_last: bool


class Begin(_Message, frozen=True, kw_only=True):
    """Play this level, from `start_s` of the machine's clock; elsewhere `lead_s` from now."""

    number: int
    start_s: float
    lead_s: float


class Stop(_Message, frozen=True, kw_only=True):
    """Close the window of this level; what is under way is drained."""

    number: int


class Abort(_Message, frozen=True, kw_only=True):
    """Cut off what runs."""


class Ended(_Message, frozen=True, kw_only=True):
    """A level has been played and drained; `facts` as in the journal, absolute times."""

    number: int
    facts: Mapping[str, Any]


class TablePart(_Message, frozen=True, kw_only=True):
    """Part of a level's table as Arrow IPC bytes; answered with More, but for the last."""

    number: int
    data: bytes
    is_last: bool


class More(_Message, frozen=True, kw_only=True):
    """The next piece or part may come."""


class Close(_Message, frozen=True, kw_only=True):
    """All is played; the worker ends in good order."""


class Closed(_Message, frozen=True, kw_only=True):
    """The worker's journal is closed."""


Message: TypeAlias = (
    Hello
    | Welcome
    | Refused
    | Trouble
    | Ready
    | Prepare
    | Piece
    | Begin
    | Stop
    | Abort
    | Ended
    | TablePart
    | More
    | Close
    | Closed
)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encoded(message: Message) -> bytes:
    """A message as it travels."""
    return msgspec.msgpack.encode(message)


def decoded(data: bytes) -> Message:
    """A message that came; msgspec.DecodeError for what is none of ours."""
    return _decoder.decode(data)


def our_version() -> str:
    """The version that master and workers must share."""
    return version("bakeoff")
