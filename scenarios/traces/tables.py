"""The rows of a trace, out of CSV or JSON lines: cells as they are written, not yet judged."""

import csv
import io
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import chain
from typing import IO, Any, Protocol, TypeAlias

import msgspec

from harness.config import TraceFormat
from harness.errors import ConfigError

_DELIMITERS = (",", ";", "\t")


# Line, time, input_tokens, output_tokens, session, hash_ids; the line is where the row ends in the
# file, from 1; None: not there. A plain tuple, because millions are made of it.
Row: TypeAlias = tuple[int, Any, Any, Any, Any, tuple[int, ...] | None]


class Table(Protocol):
    """A trace as a table: `columns` in the order of the file, `container` CSV or JSONL."""

    columns: tuple[str, ...]
    container: TraceFormat

    def rows(self, names: Mapping[str, str | None]) -> Iterator[Row]:
        """Every row that is not blank; `names`: which column each cell comes from.

        Raises:
            ConfigError: a line that is no row.
        """
        ...


def open_table(stream: IO[bytes], name: str) -> Table:
    """The table in the text of trace `name`: JSON lines if it begins with a bracket, else CSV.

    Raises:
        ConfigError: there is no text, or no row where one must be.
    """
    line_number = 0
    while True:
        begin = stream.tell()
        line = stream.readline()
        line_number += 1
        if not line:
            raise ConfigError(f"trace {name}: is empty; it needs a row for each request")
        if line.strip():
            break
    if line.lstrip().startswith((b"{", b"[")):
        return _JsonTable(line, line_number, stream, name)
    stream.seek(begin)
    return _CsvTable(stream, line_number, name)


class _CsvTable:
    """CSV with a header; the delimiter is the one that the header holds most of."""

    container = TraceFormat.CSV

    def __init__(self, stream: IO[bytes], line_number: int, name: str) -> None:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        header = text.readline()
        delimiter = max(_DELIMITERS, key=header.count)
        self.columns = tuple(next(csv.reader([header], delimiter=delimiter)))
        self._reader = csv.reader(text, delimiter=delimiter, strict=True)
        self._lines_before = line_number
        self._name = name

    def rows(self, names: Mapping[str, str | None]) -> Iterator[Row]:
        """See `Table`."""
        place = {role: self.columns.index(column) for role, column in names.items() if column}
        time, inputs, outputs = (place[role] for role in ("time", "input_tokens", "output_tokens"))
        session, hash_ids = place.get("session"), place.get("hash_ids")
        width = len(self.columns)
        for row in self._lines():
            if (len(row) != width or not row[time]) and not self._is_row(row):
                continue
            name = None if session is None else row[session]
            line = self._lines_before + self._reader.line_num
            ids = None if hash_ids is None else self._ids(row[hash_ids])
            yield line, row[time], row[inputs], row[outputs], name, ids

    def _lines(self) -> Iterator[list[str]]:
        try:
            yield from self._reader
        except csv.Error as error:
            raise ConfigError(f"{self._where}: is no CSV: {error}") from error

    def _ids(self, cell: str) -> tuple[int, ...] | None:
        """A list in a cell, `[0, 1, 2]`, as pandas writes it."""
        try:
            return msgspec.json.decode(cell, type=tuple[int, ...]) if cell.strip() else None
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self._where}: hash_ids={cell[:40]}: must be a list of integers, [0, 1, 2]"
            ) from error

    def _is_row(self, row: list[str]) -> bool:
        """Whether an odd row is one: False if it is blank."""
        if not any(cell.strip() for cell in row):
            return False
        width = len(self.columns)
        if len(row) < width or any(cell.strip() for cell in row[width:]):
            raise ConfigError(f"{self._where}: has {len(row)} cells; the header has {width}")
        return True

    @property
    def _where(self) -> str:
        return f"trace {self._name}, line {self._lines_before + self._reader.line_num}"


class _JsonTable:
    """One JSON object a line; only a line feed ends a line, so that U+2028 does not."""

    container = TraceFormat.JSONL

    def __init__(self, first: bytes, line_number: int, stream: IO[bytes], name: str) -> None:
        self._name = name
        self._lines = enumerate(chain([first], stream), line_number)
        found = self._decoded(msgspec.json.Decoder(dict[str, Any]), line_number, first)
        self.columns = tuple(found)

    def rows(self, names: Mapping[str, str | None]) -> Iterator[Row]:
        """See `Table`; columns that the first line lacks are found in later ones."""
        types = {role: tuple[int, ...] | None if role == "hash_ids" else Any for role in names}
        row_type = msgspec.defstruct(
            "_Line",
            [(role, types[role], None) for role in names],
            rename={role: column or role for role, column in names.items()},
        )
        decoder = msgspec.json.Decoder(row_type, float_hook=Decimal)
        for number, line in self._lines:
            if line.isspace():
                continue
            row: Any = self._decoded(decoder, number, line)
            cells = row.time, row.input_tokens, row.output_tokens, row.session, row.hash_ids
            yield number, *cells

    def _decoded(self, decoder: msgspec.json.Decoder[Any], number: int, line: bytes) -> Any:
        try:
            return decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            shown = line.strip()[:60].decode("utf-8", "replace")
            raise ConfigError(
                f"trace {self._name}, line {number}: must be one JSON object with finite numbers, "
                f"not {shown!r} ({str(error).rstrip('.')})"
            ) from error
