"""One run as one pandas frame: the columns of `requests.parquet` and what follows from them.

Everything is computed on flat arrays, never request by request: a run may hold 200,000 requests
of 100 chunks.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from harness.store import StoredRun
from harness.store_format import RECORD_SCHEMA
from harness.types import EngineSample, HostSample, Phase, Record

Floats = npt.NDArray[np.float64]
_LISTS = ("chunk_s", "chunk_tokens")
_NO_NUMBERS = {"kv_provenance", "gpu_throttle", "gpu_each_util_ratio", "gpu_each_memory_bytes"}


def request_frame(source: StoredRun | pa.Table | Sequence[Record]) -> pd.DataFrame:
    """One row a request, in due order, columns as the fields of `Record` plus these.

    `first_s`, `last_s`: first and last token chunk, run clock. `ttft_s` = first - due, the wait
    in the client included; `ttft_net_s` = first - sent; `lag_s` = sent - due; `e2e_s` = last -
    due (the end of the stream is `stream_end_s`); `tpot_s` = (last - first) / (N - k) with N
    output tokens, k of them in the first chunk (1 if the server does not say), NaN if N - k < 1
    or there is one chunk; `normalized_s` = e2e / N. All in s; missing is NaN.
    `chunks`: token chunks. `gaps_s`: the `chunks` - 1 gaps between them, an Arrow list column
    like `chunk_s` and `chunk_tokens`; `ragged` gives them flat.
    `is_ok`, `is_failed`, `is_censored`, `is_measured`: bool; the first three exclude each other.
    """
    table = _table(source).sort_by([("due_s", "ascending"), ("index", "ascending")])
    frame: pd.DataFrame = table.drop_columns(list(_LISTS)).to_pandas()
    lists = {name: _one_array(table[name]) for name in _LISTS}
    for name, array in lists.items():
        frame[name] = pd.Series(pd.arrays.ArrowExtensionArray(array), index=frame.index)
    _add_times(frame, lists["chunk_s"], lists["chunk_tokens"])
    frame["is_failed"] = frame["error"].notna()
    frame["is_censored"] = frame["censored_s"].notna() & ~frame["is_failed"]
    frame["is_ok"] = ~frame["is_failed"] & ~frame["is_censored"]
    frame["is_measured"] = frame["phase"] == Phase.MEASURE.value
    return frame


def _table(source: StoredRun | pa.Table | Sequence[Record]) -> pa.Table:
    if isinstance(source, StoredRun):
        return source.requests()
    if isinstance(source, pa.Table):
        return source
    columns = {name: [getattr(row, name) for row in source] for name in RECORD_SCHEMA.names}
    return pa.table(columns, schema=RECORD_SCHEMA)


def sample_frame(source: Any, kind: type[EngineSample] | type[HostSample]) -> pd.DataFrame:
    """One row a sample, columns as the fields of `kind`; `source`: a table or such values."""
    if isinstance(source, pa.Table):
        table: pd.DataFrame = source.to_pandas()
        return table
    names = [one.name for one in fields(kind)]
    columns = {name: [getattr(row, name) for row in source] for name in names}
    numbers = [name for name in names if name not in _NO_NUMBERS]
    frame = pd.DataFrame(columns)
    frame[numbers] = frame[numbers].astype(np.float64)
    return frame


def _one_array(column: pa.ChunkedArray) -> Any:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _add_times(frame: pd.DataFrame, chunk_s: Any, chunk_tokens: Any) -> None:
    counts, stamps = _flat(chunk_s)
    token_counts, tokens = _flat(chunk_tokens)
    starts, has_chunk = np.cumsum(counts) - counts, counts > 0
    first, last = np.full(counts.size, np.nan), np.full(counts.size, np.nan)
    first[has_chunk] = stamps[starts[has_chunk]]
    last[has_chunk] = stamps[(starts + counts - 1)[has_chunk]]
    in_first = np.ones(counts.size)
    has_tokens = token_counts > 0
    said = tokens[(np.cumsum(token_counts) - token_counts)[has_tokens]]
    in_first[has_tokens] = np.where(np.isnan(said), 1.0, said)
    due, sent = floats(frame["due_s"]), floats(frame["sent_s"])
    output = floats(frame["output_tokens"])
    later = output - in_first
    frame["chunks"], frame["first_s"], frame["last_s"] = counts, first, last
    frame["ttft_s"], frame["ttft_net_s"], frame["lag_s"] = first - due, first - sent, sent - due
    frame["e2e_s"] = last - due
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = (last - first) / later
        frame["normalized_s"] = np.where(output > 0, (last - due) / output, np.nan)
    frame["tpot_s"] = np.where((later >= 1) & (counts > 1), tpot, np.nan)
    frame["gaps_s"] = _gaps(counts, starts, stamps, frame.index)


def _gaps(
    counts: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], stamps: Floats, index: pd.Index
) -> "pd.Series[Any]":
    is_inner = np.ones(stamps.size, dtype=bool)
    is_inner[starts[counts > 0]] = False
    gaps = np.diff(stamps, prepend=0.0)[is_inner]
    offsets = np.concatenate([[0], np.cumsum(np.maximum(counts - 1, 0))])
    array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(gaps))
    return pd.Series(pd.arrays.ArrowExtensionArray(array), index=index)


def floats(column: "pd.Series[Any]") -> Floats:
    """A column as float64, missing as NaN."""
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _flat(array: Any) -> tuple[npt.NDArray[np.int64], Floats]:
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    flat = array.flatten().to_numpy(zero_copy_only=False)
    return (
        np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64),
        np.asarray(flat, dtype=np.float64),
    )


def ragged(column: "pd.Series[Any]") -> tuple[npt.NDArray[np.int64], Floats]:
    """A list column (`chunk_s`, `chunk_tokens`, `gaps_s`) flat: (row of each value, values).

    Both of shape (total,); rows count from 0 in the order of the column; missing is NaN.
    """
    lengths, flat = _flat(_one_array(pa.chunked_array([pa.array(column.array)])))
    return np.repeat(np.arange(lengths.size), lengths), flat


def chunk_token_counts(frame: pd.DataFrame) -> Floats:
    """Tokens in each chunk, flat in the order of `ragged(frame["chunk_s"])`.

    What the server says of a chunk counts; the rest of the request's tokens is shared equally
    by the chunks it says nothing of, and without a total each of those counts as one token.
    """
    rows, _ = ragged(frame["chunk_s"])
    said_rows, said = ragged(frame["chunk_tokens"])
    if said_rows.size != rows.size:  # a request without per-chunk counts at all
        said = np.full(rows.size, np.nan)
    unknown = np.isnan(said)
    n = len(frame)
    known_sum = np.bincount(rows, weights=np.where(unknown, 0.0, said), minlength=n)
    unknown_count = np.bincount(rows, weights=unknown, minlength=n)
    rest = floats(frame["output_tokens"]) - known_sum
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(np.isnan(rest), 1.0, np.maximum(rest, 0.0) / unknown_count)
    return np.asarray(np.where(unknown, share[rows], said))


def fluidity(frame: pd.DataFrame, first_s: float, each_s: float) -> Floats:
    """Share of each request's tokens that came by their playback deadline, shape (n_requests,).

    Token i (from 1) is due at `due_s` + `first_s` + (i - 1) * `each_s`: a reader who starts
    `first_s` after the request and reads a token every `each_s` (arXiv 2410.14257). NaN for a
    request without tokens.
    """
    rows, stamps = ragged(frame["chunk_s"])
    per_chunk = _whole(rows, chunk_token_counts(frame), len(frame))
    token_rows, token_s = np.repeat(rows, per_chunk), np.repeat(stamps, per_chunk)
    per_request = np.bincount(token_rows, minlength=len(frame))
    position = np.arange(token_rows.size) - np.repeat(
        np.cumsum(per_request) - per_request, per_request
    )
    deadline = floats(frame["due_s"])[token_rows] + first_s + position * each_s
    in_time = np.bincount(token_rows, weights=token_s <= deadline + 1e-9, minlength=len(frame))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(per_request > 0, in_time / per_request, np.nan))


def _whole(rows: npt.NDArray[np.int64], shares: Floats, n: int) -> npt.NDArray[np.int64]:
    """Whole tokens a chunk that add up to each request's total, from equal shares of it."""
    total = np.cumsum(shares)
    per_request = np.bincount(rows, weights=shares, minlength=n)
    done = total - (np.cumsum(per_request) - per_request)[rows]
    so_far = np.round(done).astype(np.int64)
    previous = np.concatenate([[0], so_far[:-1]])
    is_first = np.concatenate([[True], rows[1:] != rows[:-1]])[: rows.size]
    return np.asarray(so_far - np.where(is_first, 0, previous[: rows.size]), dtype=np.int64)
