"""Traces of every format: columns, units, sessions, shared blocks, thinning, facts."""

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from harness.config import TimeUnit, TraceConf, TraceFormat
from scenarios.traces import SHIPPED, Trace, describe, read_trace

Read: TypeAlias = Callable[..., Trace]
BURSTGPT = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,7001,1.5,ChatGPT,472,18,490,Conversation log\n"
    "45,,0.1,GPT-4,300,0,300,API log\n"
    "118,7002,4.2,GPT-4,1087,230,1317,Conversation log\n"
    "118.25,7001,2,ChatGPT,20,30,50,Conversation log\n"
    "120,,2,ChatGPT,21,31,52,API log\n"
)
OWN = "time,input_tokens,output_tokens\n10,100,20\n11.5,200,30\n12,300,40\n"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Write a trace's text or bytes and read it."""

    def write_and_read(content: str | bytes, name: str = "own.csv", **conf: Any) -> Trace:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        seed = conf.pop("seed", "1")
        return read_trace(TraceConf(path=str(path), **conf), seed=seed)

    return write_and_read


def test_azure_dates_are_exact_to_100_ns(read: Read) -> None:
    trace = read(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:46.6805901,396,109\n"
        "2023-11-17T18:15:46.6805900,879,55\n"
    )
    assert list(trace.offsets_s) == [0, 1e-7, 86_400]
    assert trace.facts["time_unit"] == "date"
    assert trace.facts["time_unit_source"] == "stamps"


def test_time_zones_are_minded(read: Read) -> None:
    trace = read(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-01-02 03:04:05.5Z,1,1\n"
        "2024-01-02 05:04:06+02:00,1,1\n"
        "2024-01-01 22:04:07 -0500,1,1\n"
    )
    assert list(trace.offsets_s) == [0, 0.5, 1.5]
    assert trace.facts["sorted"] is None


def test_burstgpt_counts_failures_and_numbers_sessions(read: Read) -> None:
    trace = read(BURSTGPT)
    facts = trace.facts
    assert facts["format"] == "burstgpt"
    assert list(trace.offsets_s) == [0, 113, 113.25, 115]
    assert list(trace.input_tokens) == [472, 1087, 20, 21]
    assert list(trace.output_tokens) == [18, 230, 30, 31]
    assert trace.sessions is not None
    assert list(trace.sessions) == [0, 1, 0, -1]
    assert facts["sessions"] == 2
    assert facts["skipped"] == {"failed": 1}
    assert (facts["rows_read"], facts["rows_used"]) == (5, 4)
    assert (facts["time_unit"], facts["time_unit_source"]) == ("s", "format")
    assert facts["mean_rate_rps"] == 4 / 115


def test_older_burstgpt_files_have_no_sessions(read: Read) -> None:
    trace = read(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n"
    )
    assert trace.facts["format"] == "burstgpt"
    assert trace.sessions is None
    assert trace.facts["mean_rate_rps"] is None
    assert "all at once" in describe(trace)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("packed", [True, False])
def test_own_csv_however_it_is_written(
    read: Read, delimiter: str, end: str, last: bool, mark: str, packed: bool
) -> None:
    rows = [*OWN.splitlines(), "", ",,", "  "]
    text = mark + end.join(row.replace(",", delimiter) for row in rows) + (end if last else "")
    data = gzip.compress(text.encode()) if packed else text.encode()
    trace = read(data, "no_telling_name")
    assert list(trace.offsets_s) == [0, 1.5, 2]
    assert list(trace.output_tokens) == [20, 30, 40]
    assert trace.facts["format"] == "csv"
    assert trace.facts["time_unit_source"] == "assumed"
    assert trace.facts["rows_read"] == 3


def test_own_csv_with_quotes_and_more_columns(read: Read) -> None:
    trace = read(
        'note,"Input_Tokens ",TIME,output_tokens,session\n'
        '"a ""b"", c\nd",100.0,1e1,20,x\n'
        ",200,11,30,y\n"
        ",300,12,40,x\n"
    )
    assert list(trace.offsets_s) == [0, 1, 2]
    assert list(trace.input_tokens) == [100, 200, 300]
    assert trace.sessions is not None
    assert list(trace.sessions) == [0, 1, 0]


def test_own_columns_in_json(read: Read) -> None:
    lines = [
        {"at": "2024-01-02T03:04:05Z", "in": 10, "out": 5, "chat": 9, "prompt": "a \u2028 b"},
        {"at": "2024-01-02T03:04:05.25Z", "in": 20.0, "out": 6, "chat": None},
    ]
    text = "\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    columns = {"time": "at", "input_tokens": "in", "output_tokens": "out", "session": "chat"}
    trace = read(text, columns=columns)
    assert list(trace.offsets_s) == [0, 0.25]
    assert list(trace.input_tokens) == [10, 20]
    assert trace.sessions is not None
    assert list(trace.sessions) == [0, -1]
    assert trace.facts["format"] == "jsonl"
    assert trace.facts["columns"] == columns


@pytest.mark.parametrize(
    ("column", "unit", "source"),
    [("t_ms", "ms", "column"), ("arrival_s", "s", "column"), ("at", "s", "assumed")],
)
def test_a_unit_in_the_columns_name_counts(read: Read, column: str, unit: str, source: str) -> None:
    text = OWN.replace("time", column)
    trace = read(text, columns={"time": column})
    assert (trace.facts["time_unit"], trace.facts["time_unit_source"]) == (unit, source)
    assert trace.offsets_s[-1] == (2 if unit == "s" else 0.002)


def test_the_given_unit_comes_first(read: Read) -> None:
    trace = read(OWN.replace("time", "arrival_s"), time_unit=TimeUnit.MS)
    assert trace.offsets_s[-1] == 0.002
    assert trace.facts["time_unit_source"] == "given"


def test_seconds_since_1970_keep_their_fractions(read: Read) -> None:
    line = '{"time": 1700000000.%s, "input_tokens": 1, "output_tokens": 1}\n'
    trace = read(line % "0000001" + line % "0000002")
    assert list(trace.offsets_s) == [0, 1e-7]
    trace = read("time,input_tokens,output_tokens\n1700000000.0000001,1,1\n1700000000.0000002,1,1")
    assert list(trace.offsets_s) == [0, 1e-7]


def test_months_of_nanoseconds_are_rounded_once(read: Read) -> None:
    trace = read("time,input_tokens,output_tokens\n0.0000000,1,1\n10454399.1234567,1,1\n")
    assert list(trace.offsets_s) == [0, 10454399.1234567]


def test_rows_out_of_order_are_sorted_and_stay_whole(read: Read) -> None:
    trace = read(
        "time,input_tokens,output_tokens,session\n5,50,1,a\n3,30,2,b\n9,90,3,c\n3,31,4,d\n8,80,5,a\n"
    )
    assert list(trace.offsets_s) == [0, 0, 2, 5, 6]
    assert list(trace.input_tokens) == [30, 31, 50, 80, 90]
    assert list(trace.output_tokens) == [2, 4, 1, 5, 3]
    assert trace.sessions is not None
    assert list(trace.sessions) == [1, 3, 0, 0, 2]
    assert trace.facts["sorted"] == "3 rows were out of order"
    assert trace.facts["recorded_span_s"] == 6


def test_hash_ids_follow_their_rows(read: Read) -> None:
    trace = read(
        '{"timestamp": 20, "input_length": 513, "output_length": 1, "hash_ids": [1, 2]}\n'
        '{"timestamp": 10, "input_length": 512, "output_length": 1, "hash_ids": [1]}\n'
        '{"timestamp": 30, "input_length": 9, "output_length": 1}\n'
    )
    assert trace.hash_ids == ((1,), (1, 2), ())
    assert trace.facts["block_tokens"] == 512


def test_hash_ids_in_csv(read: Read) -> None:
    trace = read('timestamp,input_length,output_length,hash_ids\n0,600,1,"[3, 4]"\n1000,9,1,\n')
    assert trace.hash_ids == ((3, 4), ())
    assert list(trace.offsets_s) == [0, 1]


def test_blocks_of_another_size_are_told_by_the_lengths(read: Read) -> None:
    line = '{"timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": %s}\n'
    trace = read("".join(line % (n, n * 16, list(range(n))) for n in range(1, 9)))
    assert trace.block_tokens == trace.facts["block_tokens"] == 16


def test_rows_of_length_zero_are_skipped_with_their_reason(read: Read) -> None:
    trace = read(OWN + "13,0,5\n14,5,0\n15,0,0\n16,7,8\n")
    assert trace.facts["skipped"] == {"no_input_tokens": 1, "no_output_tokens": 2}
    assert trace.facts["rows_read"] == 7
    assert list(trace.offsets_s) == [0, 1.5, 2, 6]
    assert "3 rows skipped" in describe(trace)


def test_thinning_and_scale_are_stated(read: Read) -> None:
    rows = "".join(f"{k},{k + 1},1\n" for k in range(1000))
    conf: dict[str, Any] = {"keep_ratio": 0.25, "time_scale": 0.5}
    trace = read("time,input_tokens,output_tokens\n" + rows, **conf)
    facts = trace.facts
    assert 200 < len(trace) < 300
    assert facts["rows_used"] + facts["rows_thinned"] == facts["rows_read"] == 1000
    assert (facts["time_scale"], facts["keep_ratio"]) == (0.5, 0.25)
    assert (facts["recorded_span_s"], facts["recorded_rate_rps"]) == (999, 1000 / 999)
    assert trace.offsets_s[0] == 0
    first = trace.input_tokens[0]
    assert list(trace.offsets_s) == [(t - first) * 0.5 for t in trace.input_tokens]
    assert facts["span_s"] == trace.offsets_s[-1]
    assert facts["mean_rate_rps"] == len(trace) / facts["span_s"]
    again = read("time,input_tokens,output_tokens\n" + rows, **conf)
    assert again == trace
    other = read("time,input_tokens,output_tokens\n" + rows, seed="2", **conf)
    assert other.input_tokens != trace.input_tokens
    assert "times x 0.5, 0.25 of the rows kept at random" in describe(trace)


def test_the_unit_is_judged_as_recorded(read: Read) -> None:
    fast = OWN.replace("time", "t_ms")
    assert read(OWN, time_scale=1e6).facts["time_unit_doubt"] is None
    assert read(fast, columns={"time": "t_ms"}).facts["time_unit_doubt"] is not None


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_traces(name: str) -> None:
    trace = read_trace(TraceConf(path=name), seed="1")
    facts = trace.facts
    assert 1000 < len(trace) < 6000
    assert facts["skipped"] == {}
    assert facts["sorted"] is facts["time_unit_doubt"] is None
    assert 290 < facts["span_s"] < 1200
    assert facts["licence"] == SHIPPED[name].licence
    assert facts["attribution"]
    assert (trace.hash_ids is not None) is name.startswith("mooncake")
    assert describe(trace).startswith(f"trace {name} ({name.partition('_')[0]}): ")


def test_shipped_traces_begin_as_the_originals_do() -> None:
    azure = read_trace(TraceConf(path="azure_conv"), seed="1")
    assert (azure.input_tokens[0], azure.output_tokens[0]) == (374, 44)
    assert azure.offsets_s[1] == 4.314579
    mooncake = read_trace(TraceConf(path="mooncake_conversation"), seed="1")
    assert (mooncake.input_tokens[0], mooncake.output_tokens[0]) == (6758, 500)
    assert mooncake.hash_ids is not None
    assert mooncake.hash_ids[0] == tuple(range(14))
    assert mooncake.hash_ids[1][0] == 0


def test_shipped_files_are_named_in_the_notice_and_small() -> None:
    root = Path(__file__).parents[2]
    notice = (root / "NOTICE").read_text(encoding="utf-8")
    for shipped in SHIPPED.values():
        assert shipped.file in notice
        assert (root / "scenarios/traces/data" / shipped.file).stat().st_size < 150_000


def test_a_trace_travels_and_its_facts_are_json(read: Read) -> None:
    trace = read(BURSTGPT)
    assert pickle.loads(pickle.dumps(trace)) == trace
    assert json.loads(json.dumps(trace.facts)) == trace.facts


def test_a_format_can_be_given(read: Read) -> None:
    facts = read(OWN, format=TraceFormat.CSV).facts
    assert (facts["format"], facts["format_source"]) == ("csv", "given")
    assert read(OWN).facts["format_source"] == "detected"
