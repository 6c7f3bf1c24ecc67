"""What was planned and what was played: traces, ramps, guessed lengths, counts, warm-ups."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.cells import summarise
from harness.analysis.contract import mismatches, must_match
from harness.analysis.doubts_trace import trace_words
from harness.analysis.stats import estimate_percentile, percentile
from harness.analysis.validity import run_doubts
from harness.report.client import client_section
from harness.report.columns import column_of, value_text
from harness.testing.records import make_config, make_info, make_record, store_run
from harness.types import ClientFacts, Clock, Doubt, Level, Phase, Record, RunInfo, Severity
from harness.units import estimate_with_interval


def level(**changes: Any) -> Level:
    values: dict[str, Any] = {"index": 0, "name": "x", "shape": "users", "users": 1}
    return Level(**{**values, "window_end_s": 10.0, "drained_s": 10.0, **changes})


def steady(n: int = 400, **changes: Any) -> list[Record]:
    return [
        make_record(i, due_s=t, chunk_s=(t + 0.05, t + 0.06), stream_end_s=t + 0.07, **changes)
        for i, t in enumerate(j * 10 / n for j in range(n))
    ]


def doubts_of(tmp_path: Path, info: RunInfo, records: list[Record]) -> dict[str, Doubt]:
    found = run_doubts(store_run(tmp_path / "sweep", info, records))
    return {doubt.code: doubt for doubt in found}


def test_what_was_done_to_a_trace_is_told(tmp_path: Path) -> None:
    trace = {
        "name": "azure_conv",
        "time_scale": 0.5,
        "keep_ratio": 0.25,
        "rows_thinned": 300,
        "rows_used": 100,
        "rows_played": 40,
        "clipped_input": 3,
        "clipped_output": 0,
        "skipped": {"no output": 2},
        "sorted": "4 rows were out of order",
        "time_unit_doubt": "read in ms, its 9 rows span 0.4 s",
    }
    info = make_info(levels=(level(shape="trace", users=None, trace=trace),))
    found = doubts_of(tmp_path, info, steady())
    assert found["trace_changed"].severity is Severity.NOTE
    assert found["trace_changed"].what == (
        "the trace was not played as recorded: times x 0.5, 25.0 % of the rows kept (300 left "
        "out at random), its first 40 of 100 rows, 3 prompts clipped to the scenario's "
        "longest, rows skipped: 2 no output, sorted by time (4 rows were out of order)"
    )
    assert found["time_unit_doubt"].severity is Severity.WARN
    assert found["time_unit_doubt"].what == "read in ms, its 9 rows span 0.4 s"


def test_a_trace_played_as_recorded_raises_nothing(tmp_path: Path) -> None:
    trace = {"name": "own", "time_scale": 1.0, "keep_ratio": 1.0, "rows_used": 9, "rows_played": 9}
    assert trace_words(trace) == ""
    info = make_info(levels=(level(shape="trace", users=None, trace=trace),))
    assert doubts_of(tmp_path, info, steady()) == {}


def test_across_a_ramp_no_percentile_is_given(tmp_path: Path) -> None:
    ramp = level(name="ramp=1-80/s", shape="ramp", users=None, rate_rps=1.0)
    slo = {"name": "x", "ttft_s": 1.0}
    info = make_info(levels=(ramp,), config=make_config(slo=slo))
    run = store_run(tmp_path / "sweep", info, steady())
    assert {doubt.code for doubt in run_doubts(run)} == {"ramp"}
    (cell,) = summarise([run]).cells
    for name in ("ttft_p50_s", "tpot_p99_s", "e2e_p90_s", "gap_p50_s", "attainment_ratio"):
        assert cell.metrics[name].value is None, name
        assert cell.per_run[name] == (None,)
        assert cell.metrics[name].n == 400
    reason = "- (a ramp is exploration: no one load)"
    assert value_text(cell.metrics["ttft_p50_s"], column_of("ttft_p50_s")) == reason
    assert estimate_with_interval(cell.metrics["ttft_p50_s"], "s") == reason
    assert cell.metrics["lag_p99_s"].value == 0
    assert cell.metrics["output_tokens_per_s"].value == pytest.approx(80, rel=0.02)
    assert cell.metrics["error_ratio"].value == 0


def test_lognormal_lengths_are_labelled(tmp_path: Path) -> None:
    info = make_info(config=make_config(scenario={"lengths": "lognormal"}))
    assert doubts_of(tmp_path, info, steady())["lognormal_lengths"].severity is Severity.WARN


def test_c27_another_tokenizer_is_told_once_with_both_numbers(tmp_path: Path) -> None:
    records = steady(200, prompt_tokens=4, planned_input_tokens=8)
    found = run_doubts(store_run(tmp_path / "sweep", make_info(), records))
    (doubt,) = [one for one in found if one.code == "input_length_differs"]
    assert doubt.what == (
        "mean input length was 4.0 tokens by the server's count where 8.0 were planned by ours"
    )


def test_a_chat_template_of_the_same_tokens_each_time_is_no_difference(tmp_path: Path) -> None:
    chat = make_info(config=make_config(engine={"route": "chat"}))
    alike = steady(prompt_tokens=22)
    assert "input_length_differs" not in doubts_of(tmp_path / "a", chat, alike)
    assert "input_length_differs" in doubts_of(tmp_path / "b", make_info(), alike)
    unlike = [*steady(prompt_tokens=22), make_record(400, due_s=9.9, prompt_tokens=25)]
    assert "input_length_differs" in doubts_of(tmp_path / "c", chat, unlike)


def test_what_was_said_before_is_no_difference_of_a_sessions_later_turns(tmp_path: Path) -> None:
    turns = [
        make_record(i, due_s=i / 40, session=i // 4, turn=i % 4, prompt_tokens=20 + 30 * (i % 4))
        for i in range(400)
    ]
    planned = [replace(record, planned_input_tokens=20) for record in turns]
    assert "input_length_differs" not in doubts_of(tmp_path / "a", make_info(), planned)
    wrong = [replace(record, planned_input_tokens=25) for record in turns]
    assert "input_length_differs" in doubts_of(tmp_path / "b", make_info(), wrong)


def test_where_reads_were_counted_requests_are_not_doubted_for_their_clock(tmp_path: Path) -> None:
    """One of 200 reads unstamped marks its request, and says little of the rest."""
    one_each = steady(clock=Clock.USER, reads=200)
    counted = make_info(levels=(level(client=ClientFacts(unstamped_reads=400)),))
    assert "user_clock" not in doubts_of(tmp_path / "a", counted, one_each)
    assert "user_clock" in doubts_of(tmp_path / "b", make_info(), one_each)


def test_c57_warm_up_is_in_no_figure_and_counted_apart(tmp_path: Path) -> None:
    warm = [
        make_record(i, level=-1, phase=Phase.WARMUP, due_s=-50.0, chunk_s=(-10.0,), output_tokens=1)
        for i in range(2)
    ]
    ttft_s = [0.60, 0.61, 0.62, 0.63, 0.64, 0.65, 0.66, 0.67]
    records = [make_record(10 + i, chunk_s=(t,), output_tokens=1) for i, t in enumerate(ttft_s)]
    summary = summarise([store_run(tmp_path / "sweep", make_info(), [*warm, *records])])
    (cell,) = summary.cells
    assert (cell.n, cell.metrics["ttft_p50_s"].value) == (8, 0.63)
    assert cell.achieved[0].warmup == 2
    p95 = estimate_percentile([ttft_s], 0.95)
    assert (p95.value, p95.needed) == (None, 72)
    assert percentile(ttft_s, 0.95) == 0.67
    (row,) = client_section(summary).rows
    assert row.values[-1] == "2"


def test_what_was_asked_and_reached_stands_in_the_client_section(tmp_path: Path) -> None:
    facts = {
        **make_info().facts,
        "calibration": {
            "http": {
                "capacity_tokens_per_s": 50_000.0,
                "is_lower_bound": True,
                "ttft_error_p99_s": 2e-4,
                "gap_error_p99_s": 8e-4,
                "cpu_us_per_token": 11.0,
                "measured_at": "2026-11-30T10:00:00Z",
            }
        },
    }
    busy = ClientFacts(cpu_s=2.0, stall_p99_s=0.002, peak_in_flight=3, unstamped_reads=1)
    info = make_info(levels=(level(users=2, client=busy),), facts=facts)
    records = steady(reads=4, connect_s=1e-4)
    section = client_section(summarise([store_run(tmp_path / "sweep", info, records)]))
    (row,) = section.rows
    assert row.values[:2] == ("2 users", "2.79")
    assert row.values[2:] == (
        *("3", "0 ms", "50.0 ms", "0.100 ms", "2.00 ms", "20.0 %", "0 %", "0.0625 %"),
        *("0", "0", "0"),
    )
    (said,) = section.calibration
    assert said == (
        "Test CPU, http: one worker carries at least 50,000 tokens/s with an error of 0.200 ms "
        "of TTFT and 0.800 ms of a chunk gap (P99), at 11.0 µs of CPU a token; calibrated "
        "2026-11-30."
    )


def cells_of(tmp_path: Path, *sides: tuple[str, str | None, int]) -> Any:
    """Cells of engines with (plan hash, plan of the level, requests), and their runs."""
    runs = []
    for number, (plan_hash, level_plan, n) in enumerate(sides):
        engine = f"e{number}"
        lengths = [10 + i % 7 for i in range(n)]
        records = [
            make_record(
                i,
                due_s=i * 10 / n,
                chunk_s=(i * 10 / n + 0.1, i * 10 / n + 0.2),
                prompt_tokens=tokens,
                planned_input_tokens=tokens,
            )
            for i, tokens in enumerate(lengths)
        ]
        one = level(name="users=1", plan_sha256=level_plan)
        info = make_info(engine, plan_hash=plan_hash, levels=(one,))
        runs.append(store_run(tmp_path / "sweep", info, records))
    cells = {cell.candidate.engine: cell for cell in summarise(runs).cells}
    a, b = (cells[f"e{number}"] for number in range(2))
    return mismatches(a, b, [runs[0].info], [runs[1].info])


def test_levels_of_one_plan_are_comparable_though_one_played_more(tmp_path: Path) -> None:
    """Nine requests are a beginning of 300: other mean lengths, but each as planned."""
    found = cells_of(tmp_path, ("p1", "same", 9), ("p2", "same", 300))
    assert must_match(found) == ()


def test_levels_of_different_plans_are_not(tmp_path: Path) -> None:
    found = must_match(cells_of(tmp_path, ("p1", "one", 70), ("p1", "other", 70)))
    assert [one.text for one in found] == ["plan: one against other"]


@pytest.mark.parametrize("level_plan", [None, "known"])
def test_of_older_runs_the_whole_plan_decides(level_plan: str | None, tmp_path: Path) -> None:
    same = cells_of(tmp_path / "a", ("p", None, 70), ("p", level_plan, 70))
    assert must_match(same) == ()
    other = cells_of(tmp_path / "b", ("p", None, 70), ("q", level_plan, 70))
    assert [one.name for one in must_match(other)] == ["plan"]
