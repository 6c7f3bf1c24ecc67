"""Cases C61, C62, C64: dates to 100 ns, the unit of time, and how files come out of Windows."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.config import TimeUnit, TraceConf, TraceFormat
from harness.errors import ConfigError
from scenarios.traces import Trace, describe, read_trace
from scenarios.traces.source import find_source, opened
from scenarios.traces.tables import open_table

CASES = Path(__file__).parent.parent / "data" / "cases"


def case(name: str, **conf: Any) -> Trace:
    return read_trace(TraceConf(path=str(CASES / name), **conf), seed="1")


def expected(name: str) -> Any:
    return json.loads((CASES / "expected.json").read_text(encoding="utf-8"))[name]["expect"]


def test_c61_seven_digits_after_the_second() -> None:
    trace = case("C61.csv")
    want = expected("C61")
    assert list(trace.offsets_s) == [ms / 1e3 for ms in want["offsets_ms"]] == [0, 1e-3, 8e-3, 1e-2]
    assert len(trace) == want["rows"] == 4
    assert list(trace.input_tokens) == [10, 20, 30, 40]
    assert list(trace.output_tokens) == [5, 6, 7, 8]
    assert trace.facts["format"] == "azure"


def test_c61_time_zone_whole_second_one_digit() -> None:
    want = [ms / 1e3 for ms in expected("C61")["tz"]["offsets_ms"]]
    assert list(case("C61.tz.csv").offsets_s) == want == [0, 0.5]


@pytest.mark.parametrize("kind", [TraceFormat.AUTO, TraceFormat.MOONCAKE])
def test_c62_mooncake_counts_in_milliseconds(kind: TraceFormat) -> None:
    trace = case("C62.jsonl", format=kind)
    assert list(trace.offsets_s) == expected("C62")["offsets_s"] == [0, 3, 6]
    assert trace.facts["time_unit"] == "ms"
    assert trace.facts["time_unit_source"] == "format"
    assert trace.facts["time_unit_doubt"] is None
    assert trace.hash_ids == ((0, 1), (2, 3), (4, 5))
    assert trace.block_tokens == 512


def test_c62_the_unit_can_be_said() -> None:
    trace = case("C62.sec.jsonl", time_unit=TimeUnit.S)
    assert list(trace.offsets_s) == [ms / 1e3 for ms in expected("C62")["sec"]["offsets_ms"]]
    assert list(trace.offsets_s) == [0, 0.2, 0.4]
    assert trace.facts["time_unit_source"] == "given"
    assert trace.facts["time_unit_doubt"] is None
    assert trace.hash_ids is None


def test_c62_seconds_read_as_milliseconds_are_doubted_with_span_and_rate() -> None:
    trace = case("C62.sec.jsonl")
    assert trace.facts["span_s"] == 0.0004
    assert trace.facts["mean_rate_rps"] == 7500
    assert trace.facts["time_unit_source"] == "assumed"
    doubt = trace.facts["time_unit_doubt"]
    assert "span 0.0004 s, 7500 requests/s" in doubt
    assert "load.trace.time_unit=s" in doubt
    assert describe(trace) == (
        "trace C62.sec.jsonl (mooncake): 3 requests over 0.0004 s, "
        "7,500 requests/s on average, times read as ms (assumed)"
    )


def test_c62_milliseconds_read_as_seconds_are_doubted() -> None:
    trace = case("C62.jsonl", time_unit=TimeUnit.S)
    assert list(trace.offsets_s) == [0, 3000, 6000]
    assert "load.trace.time_unit=ms" in trace.facts["time_unit_doubt"]


def test_c64_csv_with_mark_and_windows_line_ends() -> None:
    trace = case("C64.csv")
    assert len(trace) == expected("C64")["csv_rows"] == 2
    assert trace.facts["columns"] == {
        "time": "TIMESTAMP",
        "input_tokens": "ContextTokens",
        "output_tokens": "GeneratedTokens",
    }
    assert trace.output_tokens[-1] == 6
    assert list(trace.offsets_s) == [0, 1]


@pytest.mark.parametrize(
    ("file", "key"), [("C64.jsonl", "jsonl_rows"), ("C64.jsonl.gz", "gz_rows")]
)
def test_c64_lines_of_json(file: str, key: str) -> None:
    names = {"time": "prompt", "input_tokens": None, "output_tokens": "output_tokens"}
    with opened(find_source(str(CASES / file))) as stream:
        table = open_table(stream, file)
        rows = list(table.rows({**names, "session": None, "hash_ids": None}))
    assert len(rows) == expected("C64")[key] == 2
    assert table.columns == ("prompt", "output_tokens")
    assert [row[1] for row in rows] == ["one", "two \u2028 lines"]
    assert [row[0] for row in rows] == [1, 3]


@pytest.mark.parametrize("file", ["C64.jsonl", "C64.jsonl.gz"])
def test_c64_a_data_set_without_times_is_no_trace(file: str) -> None:
    with pytest.raises(ConfigError) as caught:
        case(file)
    assert str(caught.value) == (
        f"trace {file}: has no column time or timestamp or arrival_s, input_tokens (format jsonl); "
        "it has: prompt, output_tokens; say which to use, "
        "'load.trace.columns={time: NAME, input_tokens: NAME}'"
    )
