"""Traces that are refused: one sentence with file, line, value and what is allowed."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from harness.config import TimeUnit, TraceConf, TraceFormat
from harness.errors import ConfigError
from scenarios.traces import read_trace

HEADER = "time,input_tokens,output_tokens\n"
MOONCAKE = '{"timestamp": %s, "input_length": %s, "output_length": %s}\n'


def message(tmp_path: Path, content: str | bytes, **conf: Any) -> str:
    path = tmp_path / "own.trace"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return message_of(TraceConf(path=str(path), **conf))


def message_of(conf: TraceConf) -> str:
    with pytest.raises(ConfigError) as caught:
        read_trace(conf, seed="1")
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.exit_code == 2
    return text


@pytest.mark.parametrize("content", ["", "\n\r\n  \n", b"\xef\xbb\xbf", gzip.compress(b"")])
def test_empty(tmp_path: Path, content: str | bytes) -> None:
    expected = "trace own.trace: is empty; it needs a row for each request"
    assert message(tmp_path, content) == expected


def test_a_header_alone(tmp_path: Path) -> None:
    assert message(tmp_path, HEADER) == "trace own.trace: has a header but no rows"


def test_no_row_that_can_be_replayed(tmp_path: Path) -> None:
    assert message(tmp_path, HEADER + "1,0,5\n2,5,0\n") == (
        "trace own.trace: none of its 2 rows can be replayed (no_input_tokens: 1, "
        "no_output_tokens: 1); a row needs at least 1 input and 1 output token"
    )


def test_thinned_to_nothing(tmp_path: Path) -> None:
    assert message(tmp_path, HEADER + "1,5,5\n", keep_ratio=1e-9) == (
        "load.trace.keep_ratio=1e-09: must keep a row, but keeps none of the 1 of trace own.trace"
    )


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        ("-1", "-1"),
        ("nan", "nan"),
        ("-inf", "-inf"),
        ("Infinity", "Infinity"),
        ("abc", "abc"),
        ("", "nothing"),
        ("1_0", "1_0"),
        ("1e400", "1e400"),
        ("2024-01-02 03:04:05", "2024-01-02 03:04:05"),
    ],
)
def test_bad_times(tmp_path: Path, time: str, shown: str) -> None:
    assert message(tmp_path, f"{HEADER}0,5,5\n\n{time},5,5\n") == (
        f"trace own.trace, line 4: time={shown}: must be a finite number of s from 0 to "
        "9,223,372,036"
    )


def test_microseconds_since_1970_are_neither_unit(tmp_path: Path) -> None:
    text = message(tmp_path, HEADER + "1700000000000000,5,5\n")
    assert text.startswith("trace own.trace, line 2: time=1700000000000000: must be a finite")


@pytest.mark.parametrize(
    "time",
    [
        "2024-13-02 03:04:05",
        "2024-01-02 25:04:05",
        "1234-01-02 03:04:05",
        "9999-01-02 00:00:00",
        "7",
    ],
)
def test_bad_dates(tmp_path: Path, time: str) -> None:
    assert message(tmp_path, f"{HEADER}2024-01-02 03:04:05,5,5\n{time},5,5\n") == (
        f"trace own.trace, line 3: time={time}: must be a date such as "
        "2024-01-02 03:04:05.1234567 between 1678 and 2262"
    )


def test_dates_with_and_without_a_zone(tmp_path: Path) -> None:
    rows = "2024-01-02 03:04:05,5,5\n2024-01-02 03:04:05Z,5,5\n"
    assert message(tmp_path, HEADER + rows).endswith(
        "must be a date without a time zone, as in the first row"
    )


def test_a_unit_for_dates(tmp_path: Path) -> None:
    rows = HEADER + "2024-01-02 03:04:05,5,5\n"
    assert message(tmp_path, rows, time_unit=TimeUnit.MS) == (
        "load.trace.time_unit=ms: must be auto, since the times of trace own.trace are dates"
    )


@pytest.mark.parametrize(
    "tokens", ["-5", "nan", "inf", "5.5", "five", "4294967296", "1,234", "", "٣.٥"]
)
@pytest.mark.parametrize("column", ["input_tokens", "output_tokens"])
def test_bad_tokens(tmp_path: Path, tokens: str, column: str) -> None:
    cells = {"input_tokens": "5", "output_tokens": "5", column: f'"{tokens}"'}
    row = f"1,{cells['input_tokens']},{cells['output_tokens']}\n"
    assert message(tmp_path, HEADER + row) == (
        f"trace own.trace, line 2: {column}={tokens or 'nothing'}: must be a whole number of "
        "tokens from 0 to 4,294,967,295"
    )


@pytest.mark.parametrize("tokens", ["-5", "5.5", "true", "null", "[5]", "{}", '"five"', "1e400"])
def test_bad_tokens_in_json(tmp_path: Path, tokens: str) -> None:
    text = message(tmp_path, MOONCAKE % (0, 5, 5) + MOONCAKE % (1, 5, tokens))
    assert text.startswith("trace own.trace, line 2: output_length=")
    assert text.endswith(": must be a whole number of tokens from 0 to 4,294,967,295")


def test_a_field_that_a_line_lacks(tmp_path: Path) -> None:
    text = message(tmp_path, MOONCAKE % (0, 5, 5) + '{"timestamp": 1, "input_length": 5}\n')
    assert text.startswith("trace own.trace, line 2: output_length=nothing: must be a whole")


@pytest.mark.parametrize(
    "line",
    [
        "[1, 2]",
        "7",
        "null",
        "{",
        "not json",
        '{"timestamp": NaN}',
        '{"timestamp": Infinity}',
        "[" * 100_000,
        '{"a": 1} {"a": 2}',
        '{"timestamp": 1, "hash_ids": ["x"]}',
        '{"timestamp": 1, "hash_ids": 5}',
    ],
)
def test_lines_that_are_no_json_object(tmp_path: Path, line: str) -> None:
    text = message(tmp_path, MOONCAKE % (0, 5, 5) + line + "\n")
    assert text.startswith(
        "trace own.trace, line 2: must be one JSON object with finite numbers, not "
    )
    assert len(text) < 300


def test_a_json_list_of_rows(tmp_path: Path) -> None:
    text = message(tmp_path, '[{"timestamp": 1, "input_length": 5, "output_length": 5}]')
    assert text.startswith("trace own.trace, line 1: must be one JSON object")


def test_missing_columns_of_a_known_format(tmp_path: Path) -> None:
    assert message(tmp_path, "TIMESTAMP,ContextTokens\n2024-01-02 03:04:05,5\n") == (
        "trace own.trace: has no column GeneratedTokens (format azure); it has: TIMESTAMP, "
        "ContextTokens; say which to use, 'load.trace.columns={output_tokens: NAME}'"
    )


def test_no_header(tmp_path: Path) -> None:
    text = message(tmp_path, "2023-11-16 18:15:46.6805900,374,44\n")
    assert "it has: 2023-11-16 18:15:46.6805900, 374, 44" in text


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    text = message(tmp_path, HEADER + "1,2,3\n", columns={"session": "chat"})
    assert "has no column chat (format csv)" in text
    assert message(tmp_path, HEADER + "1,2,3\n", columns={"tokens": "n"}) == (
        "load.trace.columns=tokens: must be of time, input_tokens, output_tokens, session, hash_ids"
    )


def test_another_format_than_given(tmp_path: Path) -> None:
    assert message(tmp_path, MOONCAKE % (0, 5, 5), format=TraceFormat.CSV) == (
        "load.trace.format=csv: trace own.trace begins like jsonl; say load.trace.format=jsonl"
    )
    text = message(tmp_path, HEADER + "1,2,3\n", format=TraceFormat.AZURE)
    assert "has no column TIMESTAMP, ContextTokens, GeneratedTokens (format azure)" in text


def test_hash_ids_in_csv_that_are_no_list(tmp_path: Path) -> None:
    text = message(tmp_path, "time,input_tokens,output_tokens,hash_ids\n1,2,3,4 5\n")
    assert text == ("trace own.trace, line 2: hash_ids=4 5: must be a list of integers, [0, 1, 2]")


def test_a_row_of_another_width(tmp_path: Path) -> None:
    assert message(tmp_path, HEADER + "1,2\n") == (
        "trace own.trace, line 2: has 2 cells; the header has 3"
    )
    assert message(tmp_path, HEADER + "1,1,234,5\n").endswith("has 4 cells; the header has 3")


def test_quotes_that_never_close(tmp_path: Path) -> None:
    assert "is no CSV: " in message(tmp_path, HEADER + '1,"2,3\n')


def test_hash_ids_that_fit_no_block_size(tmp_path: Path) -> None:
    line = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2, 3, 4]}\n'
    assert message(tmp_path, line) == (
        "trace own.trace: hash_ids do not fit the lengths (4 ids for 600 tokens): must be one id "
        "for every 512 tokens begun; remove the column to replay lengths only"
    )


def test_a_file_that_is_not_there_names_the_shipped_ones(tmp_path: Path) -> None:
    path = tmp_path / "absent.csv"
    assert message_of(TraceConf(path=str(path))) == (
        f"load.trace.path={path}: no such file; give a file, or a trace that ships with bakeoff: "
        "azure_code, azure_conv, mooncake_conversation, mooncake_synthetic"
    )
    assert f"load.trace.path={tmp_path}: is a folder; give a file" in message_of(
        TraceConf(path=str(tmp_path))
    )


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    (tmp_path / "own.csv").touch()
    text = message_of(TraceConf(path=str(tmp_path / "own.csv")))
    assert text == "trace own.csv: cannot be read: Permission denied"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_text_in_wide_characters(tmp_path: Path, encoding: str) -> None:
    text = message(tmp_path, (HEADER + "1,2,3\n").encode(encoding))
    assert "UTF-16 text; save the file as UTF-8" in text or "binary data" in text


def test_text_in_latin_1(tmp_path: Path) -> None:
    text = message(tmp_path, (HEADER + "1,2,3é\n").encode("latin-1"))
    assert text == "trace own.trace: byte 0xe9 is no UTF-8 text; save the file as UTF-8"
    assert "line 2" in message(
        tmp_path, (MOONCAKE % (0, 5, 5) + MOONCAKE % (1, 5, '"é"')).encode("latin-1")
    )


def test_binary_garbage(tmp_path: Path) -> None:
    for content in (bytes(range(256)), b"\x80" * 100, os.urandom(5000), b"PK\x03\x04" + b"x" * 99):
        assert message(tmp_path, content).startswith("trace own.trace")


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress((HEADER + "".join(f"{k},2,3\n" for k in range(9999))).encode())
    broken = bytearray(whole)
    broken[-6] ^= 0xFF  # of the checksum
    for content in (whole[: len(whole) // 2], bytes(broken), whole[:2], whole + b"junk"):
        text = message(tmp_path, content)
        assert text.startswith("trace own.trace: its gzip data is cut off or damaged: ")


def test_scales_and_ratios(tmp_path: Path) -> None:
    rows = HEADER + "1,2,3\n1e9,2,3\n"
    assert message(tmp_path, rows, time_scale=1e308) == (
        "load.trace.time_scale=1e+308: must leave a finite span; the trace takes 1e+09 s as "
        "recorded"
    )
    for conf in ({"time_scale": 0.0}, {"time_scale": float("nan")}, {"keep_ratio": 10.0}):
        assert message(tmp_path, rows, **conf).startswith("load.trace.")
    assert message_of(TraceConf()).startswith("load.trace.path: not given")
