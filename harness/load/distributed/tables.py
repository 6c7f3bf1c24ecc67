"""Records as they travel from a worker: a table in Arrow's IPC form, with the store's columns.

A worker has no tokenizer. Where the server does not count the tokens of an answer, its text comes
along in one more column and is counted where the tables are put together.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa

from harness.errors import StoreFormatError
from harness.store_format import RECORD_SCHEMA
from harness.types import Record, TokensSource

_TEXT = "uncounted_text"
_SCHEMA = RECORD_SCHEMA.append(pa.field(_TEXT, pa.string()))


class UncountedTexts:
    """Stands in for a tokenizer while a worker decodes: keeps each text and gives it a number.

    The numbers are negative, so that no count can be mistaken for one.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []

    def keep(self, text: str) -> int:
        """Keep a text; the number that stands for it."""
        self._texts.append(text)
        return -len(self._texts)

    def table_bytes(self, records: Sequence[Record]) -> bytes:
        """The records as a table, with the texts that are still to be counted."""
        columns = {name: [getattr(r, name) for r in records] for name in RECORD_SCHEMA.names}
        texts: list[str | None] = []
        for row, count in enumerate(columns["output_tokens"]):
            is_uncounted = count is not None and count < 0
            texts.append(self._texts[-count - 1] if is_uncounted else None)
            if is_uncounted:
                columns["output_tokens"][row] = None
        table = pa.table({**columns, _TEXT: texts}, schema=_SCHEMA)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as writer:
            writer.write_table(table)
        self._texts.clear()
        data: bytes = sink.getvalue().to_pybytes()
        return data


def read_records(path: Path, count_tokens: Callable[[str], int] | None) -> list[Record]:
    """The records of a worker's table, all tokens counted.

    `count_tokens`: None without a tokenizer; then the chunks are counted, and the record says so.
    """
    try:
        rows = pa.ipc.open_stream(path.read_bytes()).read_all().to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreFormatError(f"{path}: cannot be read: {error}") from error
    records = []
    for row in rows:
        text = row.pop(_TEXT)
        record = msgspec.convert(row, Record)
        records.append(record if text is None else _counted(record, text, count_tokens))
    return records


def _counted(record: Record, text: str, count_tokens: Callable[[str], int] | None) -> Record:
    if count_tokens is None:
        chunks = len(record.chunk_s)
        return replace(record, output_tokens=chunks, tokens_source=TokensSource.CHUNKS)
    return replace(record, output_tokens=count_tokens(text))
