"""Reads a journal from start to end, or entry by entry while it is still being written."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.adapter import Adapter
from harness.grpc.decode import GrpcBody, HeaderTables
from harness.load.calls import Planned
from harness.load.decode.body import Body, HttpBody
from harness.load.decode.exchange import LOST, Exchange, Place
from harness.load.decode.levels import LevelRows, PlayedLevel
from harness.load.journal import Entry, Kind, read_entries
from harness.types import Level, Phase, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A whole journal: its records, its measured levels, and the zero of its clock."""

    zero_s: float
    started_at_s: float
    records: tuple[Record, ...]
    levels: tuple[Level, ...]


@dataclass(slots=True, kw_only=True)
class JournalDecoder:
    """Decodes one journal. `planned`: by request index. `levels`: by number, in played order.

    `worker`: whose journal it is, where several share a load.
    """

    adapter: Adapter
    block: int
    planned: Callable[[int], Planned]
    levels: Sequence[PlayedLevel]
    count_tokens: Callable[[str], int] | None = None
    worker: int | None = None
    _open: dict[int, Exchange] = field(default_factory=dict)
    _tables: HeaderTables = field(default_factory=HeaderTables)
    _rows: LevelRows = field(init=False)
    _zero_s: float = 0.0
    _started_at_s: float = 0.0
    _last_s: float = 0.0

    def __post_init__(self) -> None:
        self._rows = LevelRows(levels=self.levels)

    def decode(self, path: Path) -> Decoded:
        """Read the journal from start to end; requests that never ended become errors."""
        records = [record for entry in read_entries(path) if (record := self.take(entry))]
        lost = [Entry(Kind.END, index, self._last_s, 0.0, LOST.encode()) for index in self._open]
        records += [self._close(entry) for entry in lost]
        records.sort(key=lambda record: (record.level, record.index))
        return Decoded(
            zero_s=self._zero_s,
            started_at_s=self._started_at_s,
            records=tuple(records),
            levels=tuple(self._rows.rows(self._zero_s, self._last_s)),
        )

    def take(self, entry: Entry) -> Record | None:
        """Take the next entry; a record if it ends one."""
        self._last_s = max(self._last_s, entry.t_s)
        if entry.kind == Kind.END:
            return self._close(entry)
        if entry.kind == Kind.DUE:
            self._open[entry.request] = Exchange(entry, self._body)
        elif entry.kind == Kind.OPEN:
            self._zero_s, self._started_at_s = entry.t_s, entry.extra
        elif entry.kind == Kind.LEVEL_BEGIN:
            self._rows.begin(entry)
        elif entry.kind == Kind.LEVEL:
            self._rows.end(entry)
        else:
            self._open[entry.request].take(entry, self._zero_s)
        return None

    def under_way(self, level: int) -> Iterator[tuple[int, float, float | None]]:
        """Requests of a level that have not ended: index, due time, first token (or None), in s."""
        for exchange in self._open.values():
            if exchange.level == level:
                yield exchange.index, exchange.due_s - self._zero_s, exchange.first_s

    @property
    def zero_s(self) -> float:
        """The run's zero on the monotonic clock; 0 before the journal said it."""
        return self._zero_s

    def level_start_s(self, number: int) -> float | None:
        """When a level began, on the run's clock; None: it has not."""
        begun_s = self._rows.begun_s(number)
        return None if begun_s is None else begun_s - self._zero_s

    def _body(self, channel: int | None) -> Body:
        if channel is None:
            return HttpBody(self.adapter, self.count_tokens)
        return GrpcBody(self.adapter, self.count_tokens, self._tables.of(channel))

    def _close(self, entry: Entry) -> Record:
        exchange = self._open.pop(entry.request)
        is_warmup = self.levels[exchange.level].is_warmup
        place = Place(
            level=self._rows.row_of(exchange.level),
            block=self.block,
            phase=Phase.WARMUP if is_warmup else Phase.MEASURE,
            worker=self.worker,
        )
        planned = self.planned(exchange.index)
        return exchange.record(entry, self._zero_s, self.adapter, planned, place)
