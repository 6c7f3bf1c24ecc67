"""Calls on their way to a worker that has no file of the master's: its share, piece by piece."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.load.calls import Calls, PlannedCalls
from harness.load.distributed.messages import PIECE_BYTES, Piece
from harness.load.job import LevelJob
from harness.load.play.share import Share

_SMALL_FILES = ("calls.idx", "calls.json")


def small_files(folder: Path) -> Mapping[str, bytes]:
    """The files that every worker needs whole: where each call is, and what was planned of it."""
    return {name: (folder / name).read_bytes() for name in _SMALL_FILES}


def pieces(calls: Calls, levels: Sequence[LevelJob], share: Share) -> Iterator[Piece]:
    """The bytes of a worker's share of these levels, about PIECE_BYTES in each piece."""
    data: list[tuple[int, bytes]] = []
    size = 0
    for level in levels:
        for index in share.indices(level):
            data.append((index, calls[index].data))
            size += len(data[-1][1])
            if size >= PIECE_BYTES:
                yield Piece(data=data, is_last=False)
                data, size = [], 0
    yield Piece(data=data, is_last=True)


def due_by(calls: Calls, level: LevelJob, share: Share, at_s: float) -> Iterator[tuple[int, float]]:
    """Which arrivals of an open level a worker had to send by then, each with its due time."""
    end_s = at_s if level.duration_s is None else min(at_s, level.duration_s)
    for index in share.places(level) if not level.lanes else ():
        due_s = calls[index].due_s
        if due_s is not None and due_s < end_s:
            yield index, due_s


class ReceivedCalls:
    """Puts pieces together to a calls folder that has holes where other workers' calls are.

    The file is sparse: holes take no place on the disk.
    """

    def __init__(self, folder: Path, files: Mapping[str, bytes]) -> None:
        self.folder = folder / "calls"
        self.is_whole = False
        self.folder.mkdir(exist_ok=True)
        for name in _SMALL_FILES:
            (self.folder / name).write_bytes(files[name])
        self._planned = PlannedCalls(self.folder)
        last = self._planned.first + len(self._planned) - 1
        self._path = self.folder / "calls.bin"
        self._path.unlink(missing_ok=True)  # the one before may still be open
        with self._path.open("wb") as file:
            file.truncate(sum(self._planned.place(last)))

    def take(self, piece: Piece) -> None:
        """Write a piece to its places."""
        with self._path.open("r+b") as file:
            for index, data in piece.data:
                file.seek(self._planned.place(index)[0])
                file.write(data)
        self.is_whole = piece.is_last
