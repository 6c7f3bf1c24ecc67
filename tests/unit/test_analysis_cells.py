import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.cells import summarise
from harness.analysis.metrics import BY_NAME, METRICS
from harness.analysis.model import Cell
from harness.config import SloConf
from harness.store import StoredRun
from harness.testing.records import make_config, make_info, make_record, store_run
from harness.types import (
    EngineIdentity,
    EngineSample,
    ErrorClass,
    HostSample,
    Level,
    Outcome,
    Record,
    RunInfo,
    Severity,
    VerdictKind,
)


def _level(end_s: float, **changes: Any) -> tuple[Level, ...]:
    level = Level(index=0, name="users=1", shape="users", users=1, window_end_s=end_s)
    return (replace(level, **changes),)


def _one_cell(tmp_path: Path, info: RunInfo, records: list[Record], **more: Any) -> Cell:
    slo = more.pop("slo", None)
    run = store_run(tmp_path / "sweep", info, records, **more)
    (cell,) = summarise([run], slo=slo).cells
    return cell


def _values(cell: Cell) -> dict[str, float | None]:
    return {name: estimate.value for name, estimate in cell.metrics.items()}


def test_c41_output_is_a_ratio_of_sums(tmp_path: Path) -> None:
    records = []
    for i, (due, first, end) in enumerate([(0.0, 0.5, 1.0), (1.0, 2.0, 5.0)]):
        chunk_s = (first, *(first + (end - first) * j / 99 for j in range(1, 100)))
        records.append(make_record(i, due_s=due, chunk_s=chunk_s, output_tokens=100))
    cell = _one_cell(tmp_path, make_info(levels=_level(5.0)), records)
    assert cell.metrics["output_tokens_per_s"].value == pytest.approx(40)
    assert cell.metrics["requests_per_s"].value == pytest.approx(0.4)
    assert cell.metrics["tpot_p50_s"].value == pytest.approx(1 / 198)


def test_c43_tokens_in_flight_count_by_arrival_and_latencies_are_censored(tmp_path: Path) -> None:
    stamps = tuple(0.05 * (i + 1) for i in range(100))
    records = [make_record(i, chunk_s=stamps, output_tokens=100) for i in range(8)]
    cut = tuple(9.0 + 0.01 * i for i in range(50))
    records += [
        make_record(i, due_s=8.0, chunk_s=cut, output_tokens=50, censored_s=2.0)
        for i in range(8, 12)
    ]
    cell = _one_cell(tmp_path, make_info(), records)
    assert (cell.n, cell.n_ok, cell.n_failed, cell.n_censored) == (12, 8, 0, 4)
    values = _values(cell)
    assert values["output_tokens_per_s"] == pytest.approx(100)
    assert values["output_tokens_per_s_finished"] == pytest.approx(80)
    assert values["requests_per_s"] == pytest.approx(0.8)
    assert values["error_ratio"] == 0
    assert cell.metrics["e2e_p50_s"].n == 12
    assert values["e2e_p50_s"] == pytest.approx(5.0)
    doubt = next(doubt for doubt in cell.doubts if doubt.code == "censored")
    assert doubt.what.startswith("4 of 12")


def test_a_percentile_among_the_cut_off_is_a_lower_bound(tmp_path: Path) -> None:
    records = [make_record(i, censored_s=7.0, chunk_s=()) for i in range(7)]
    records += [make_record(i) for i in range(7, 10)]
    cell = _one_cell(tmp_path, make_info(), records)
    estimate = cell.metrics["ttft_p50_s"]
    assert (estimate.value, estimate.censored) == (7.0, True)
    assert cell.per_run["ttft_p50_s"] == (None,)


def test_c47_everything_failed_gives_no_figure_but_the_error_ratio(tmp_path: Path) -> None:
    records = [
        make_record(
            i,
            chunk_s=(),
            output_tokens=None,
            prompt_tokens=None,
            tokens_source=None,
            error=ErrorClass.CONNECTION_ERROR,
            error_message="refused",
        )
        for i in range(3)
    ]
    slo = SloConf(name="chat", ttft_s=1.0, tpot_s=0.1)
    config = make_config(hardware={"price": {"per_hour": 3.0}})
    info = make_info(config=config)
    samples = [EngineSample(t_s=1.0, running=0, waiting=0, kv_usage_ratio=0.0)]
    cell = _one_cell(tmp_path, info, records, slo=slo, engine=samples)
    assert (cell.n, cell.n_ok, cell.n_failed) == (3, 0, 3)
    values = _values(cell)
    assert values.pop("error_ratio") == 1.0
    assert set(values) == set(BY_NAME) - {"error_ratio"}
    assert {name for name, value in values.items() if value is not None} == set()
    doubt = next(doubt for doubt in cell.doubts if doubt.code == "all_failed")
    assert doubt.severity is Severity.INVALID
    assert "connection_error: refused" in doubt.what


def test_every_metric_of_the_table_is_measured(tmp_path: Path) -> None:
    records = [
        make_record(
            i,
            due_s=i * 0.02,
            chunk_s=(i * 0.02 + 0.5, i * 0.02 + 0.7),
            output_tokens=3,
            stream_end_s=i * 0.02 + 0.8,
        )
        for i in range(400)
    ]
    engine = [
        EngineSample(
            t_s=t, running=1, waiting=t, kv_usage_ratio=t / 10, preemptions_total=t, scrape_s=0.001
        )
        for t in (1.0, 2.0, 3.0)
    ]
    host = [
        HostSample(
            t_s=t_s,
            cpu_total_ratio=0.5,
            engine_rss_bytes=5,
            gpu_memory_bytes=7,
            gpu_util_ratio=0.75,
            gpu_power_w=700.0,
            gpu_energy_j=1000.0 + 60 * t_s,
            gpu_sm_clock_mhz=1980.0,
            gpu_temperature_c=60.0,
            gpu_throttle="",
            gpu_each_util_ratio=(0.5, 1.0),
            gpu_each_memory_bytes=(3, 4),
        )
        for t_s in (1.0, 9.0)
    ]
    host += [
        HostSample(t_s=99.0, cpu_total_ratio=0.5, engine_rss_bytes=99, gpu_memory_bytes=99),
    ]
    price = {"per_hour": 3.6, "currency": "EUR", "date": "2026-11-30", "source": "invoice"}
    info = make_info(
        time_to_ready_s=4.0,
        config=make_config(hardware={"price": price}, engine={"max_running": 64}),
        identity=EngineIdentity(kv_capacity_tokens=1000),
    )
    slo = SloConf(name="chat", ttft_s=0.6, tpot_s=0.2)
    cell = _one_cell(tmp_path, info, records, engine=engine, host=host, slo=slo)
    values = _values(cell)
    assert [name for name, value in values.items() if value is None] == []
    assert list(values) == [metric.name for metric in METRICS]
    assert values["ttft_p99_s"] == pytest.approx(0.5)
    assert values["tpot_p50_s"] == pytest.approx(0.1)
    assert values["gap_p90_s"] == pytest.approx(0.2)
    assert values["output_tokens_per_s"] == pytest.approx(1200 / 10)
    assert values["cost_per_mtok"] == pytest.approx(3.6 / (3600 * 120) * 1e6)
    assert values["offered_rps"] == pytest.approx(40)
    assert values["attainment_ratio"] == 1.0
    assert values["fluidity_ratio"] == 1.0
    assert (values["waiting"], values["waiting_max"], values["preemptions"]) == (2, 3, 2)
    assert values["kv_usage_ratio"] == pytest.approx(0.2)
    assert (values["engine_rss_bytes"], values["gpu_memory_bytes"]) == (5, 7)
    assert values["energy_per_token_j"] == pytest.approx(60 / 120)
    assert (values["gpu_imbalance_ratio"], values["gpu_throttled_ratio"]) == (
        pytest.approx(0.5 / 0.75),
        0.0,
    )
    ours = values["kv_usage_derived_ratio"]
    assert ours == pytest.approx((values["kv_tokens"] or 0) / 1000)
    assert values["kv_usage_difference_ratio"] == pytest.approx((ours or 0) - 0.2)
    assert (values["time_to_ready_s"], values["tokens_per_chunk"]) == (4.0, 1.5)
    assert (cell.candidate.price_per_hour, cell.candidate.currency) == (3.6, "EUR")


def test_attainment_counts_failed_and_cut_off_as_not_good(tmp_path: Path) -> None:
    records = [make_record(i) for i in range(5)]  # TTFT .5
    records += [make_record(i, chunk_s=(0.9, 1.0)) for i in range(5, 8)]
    records.append(make_record(8, error=ErrorClass.TIMEOUT, chunk_s=()))
    records.append(make_record(9, censored_s=9.0, chunk_s=()))
    slo = SloConf(name="chat", ttft_s=0.6)
    cell = _one_cell(tmp_path, make_info(), records, slo=slo)
    assert cell.metrics["attainment_ratio"].value == 0.5
    assert cell.metrics["goodput_rps"].value == 0.5
    assert cell.metrics["good_tokens_per_s"].value == 1.0
    assert cell.metrics["output_tokens_per_s"].value == pytest.approx(1.6)
    assert cell.metrics["error_ratio"].value == pytest.approx(1 / 9)
    none = _one_cell(tmp_path / "b", make_info(), records)
    assert none.metrics["goodput_rps"].value is None


def _run(tmp_path: Path, info: RunInfo, scale: float = 1.0, sweep: str = "sweep") -> StoredRun:
    records = [
        make_record(
            i,
            due_s=i * 0.2,
            chunk_s=(i * 0.2 + 0.05 * scale, i * 0.2 + 0.1 * scale + 0.0001 * (i % 7)),
        )
        for i in range(50)
    ]
    return store_run(tmp_path / sweep, info, records)


def test_runs_of_one_configuration_share_a_cell_and_others_get_labels_apart(
    tmp_path: Path,
) -> None:
    runs = []
    for block in range(3):
        for most in (8, 16):
            config = make_config(engine={"max_running": most})
            info = make_info(
                "alpha",
                block=block,
                config=config,
                run_id=f"a{most}-b{block}",
                content_hash=f"{most}-{block}",
            )
            runs.append(_run(tmp_path, info))
        runs.append(_run(tmp_path, make_info("beta", block=block)))
    summary = summarise(runs)
    labels = [cell.candidate.label for cell in summary.cells]
    assert labels == ["alpha max_running=8", "alpha max_running=16", "beta"]
    assert summary.cells[0].run_ids == ("a8-b0", "a8-b1", "a8-b2")
    assert summary.cells[0].blocks == (0, 1, 2)
    assert summary.cells[0].n == 150
    assert summary.title == "sweep"
    assert set(summary.runs) == {run.info.run_id for run in runs}
    pairs = {(verdict.a, verdict.b) for verdict in summary.verdicts}
    assert len(pairs) == 3
    ttft = [v for v in summary.verdicts if v.metric == "ttft_p50_s"]
    assert {v.kind for v in ttft} == {VerdictKind.EQUIVALENT}


def test_a_slow_engine_is_worse_and_the_verdict_names_keys(tmp_path: Path) -> None:
    runs = []
    for block in range(4):
        noise = 1 + 0.01 * block
        runs.append(_run(tmp_path, make_info("alpha", block=block), scale=noise))
        runs.append(_run(tmp_path, make_info("beta", block=block), scale=1.5 * noise))
    summary = summarise(runs)
    verdict = next(v for v in summary.verdicts if v.metric == "ttft_p50_s")
    first, second = (cell.candidate for cell in summary.cells)
    assert (verdict.a, verdict.b) == (first.key, second.key)
    assert verdict.workload == summary.cells[0].workload.key
    assert verdict.kind is VerdictKind.BETTER
    assert verdict.ratio == pytest.approx(1 / 1.5, rel=0.01)
    assert verdict.blocks == 4


def test_of_equal_runs_the_newest_measured_one_counts(tmp_path: Path) -> None:
    old = make_info(run_id="old", ended_at="2026-11-29T00:00:00+00:00", content_hash="same")
    new = make_info(run_id="new", ended_at="2026-11-30T00:00:00+00:00", content_hash="same")
    broken = make_info(
        run_id="broken",
        outcome=Outcome.DIED,
        ended_at="2026-11-30T09:00:00+00:00",
        content_hash="same",
    )
    summary = summarise([_run(tmp_path, info) for info in (old, new, broken)])
    assert summary.cells[0].run_ids == ("new",)
    assert summary.failed == ()
    noted = {d.where for d in summary.doubts if d.code == "superseded"}
    assert noted == {"sweep/old", "sweep/broken"}


def test_the_same_on_another_machine_is_another_candidate(tmp_path: Path) -> None:
    here = make_info(content_hash="same")
    machine = {"label": "Other, 1 core", "cpu_model": "Other CPU", "cores_allowed": [0]}
    facts = {"machine": {**machine, "gpus": []}}
    there = make_info(content_hash="same", facts=facts, run_id="there")
    summary = summarise([_run(tmp_path, here), _run(tmp_path, there)])
    labels = sorted(cell.candidate.label for cell in summary.cells)
    assert labels == ["alpha on Other, 1 core", "alpha on Test CPU"]
    assert {v.kind for v in summary.verdicts} == {VerdictKind.NOT_COMPARABLE}
    assert "CPU: " in summary.verdicts[0].reason


def test_a_failed_run_is_kept_as_a_failure(tmp_path: Path) -> None:
    info = make_info("beta", outcome=Outcome.NOT_READY, diagnosis="out of memory", levels=())
    summary = summarise([_run(tmp_path, make_info()), _run(tmp_path, info)])
    assert [cell.candidate.engine for cell in summary.cells] == ["alpha"]
    (failed,) = summary.failed
    assert (failed.run_id, failed.reason, failed.scenario) == ("beta-b0", "out of memory", "chat")
    assert failed.candidate.label == "beta"


def test_an_invalid_run_is_left_out_while_others_are_valid(tmp_path: Path) -> None:
    bad = make_info(block=1, outcome=Outcome.INVALID, diagnosis="client late")
    summary = summarise([_run(tmp_path, make_info()), _run(tmp_path, bad)])
    (cell,) = summary.cells
    assert cell.run_ids == ("alpha-b0",)
    doubt = next(d for d in cell.doubts if d.code == "invalid_runs_left_out")
    assert doubt.severity is Severity.WARN
    assert "1 of 2" in doubt.what
    assert "client late" in doubt.what


def test_a_cell_without_a_valid_run_stays_but_gets_no_verdict(tmp_path: Path) -> None:
    bad = make_info("beta", outcome=Outcome.INVALID, diagnosis="client late")
    summary = summarise([_run(tmp_path, make_info()), _run(tmp_path, bad)])
    assert len(summary.cells) == 2
    assert any(d.severity is Severity.INVALID for d in summary.cells[1].doubts)
    assert summary.verdicts
    assert {v.kind for v in summary.verdicts} == {VerdictKind.NOT_COMPARABLE}


def test_levels_are_cells_of_their_own_in_order_of_load(tmp_path: Path) -> None:
    levels = (
        Level(index=0, name="users=4", shape="users", users=4, window_end_s=10.0),
        Level(
            index=1,
            name="users=1",
            shape="users",
            users=1,
            window_start_s=20.0,
            window_end_s=30.0,
        ),
        Level(index=2, name="users=1", shape="users", users=1, window_end_s=10.0),
    )
    records = [make_record(0), make_record(1, level=1, due_s=20.0, chunk_s=(20.2, 20.3))]
    records += [make_record(2, level=2), make_record(3, level=-1, chunk_s=(9.0, 9.5))]
    run = store_run(tmp_path / "sweep", make_info(levels=levels), records)
    cells = summarise([run]).cells
    assert [cell.workload.level for cell in cells] == ["users=1", "users=1 #2", "users=4"]
    assert [cell.n for cell in cells] == [1, 1, 1]
    assert cells[0].metrics["ttft_p50_s"].value == pytest.approx(0.2)
    assert cells[0].workload.key != cells[1].workload.key


def test_a_run_without_its_tables_becomes_a_doubt(tmp_path: Path) -> None:
    good, bad = _run(tmp_path, make_info()), _run(tmp_path, make_info("beta"))
    (bad.folder / "requests.parquet").unlink()
    summary = summarise([good, bad])
    assert [cell.candidate.engine for cell in summary.cells] == ["alpha"]
    assert [doubt.code for doubt in summary.doubts] == ["damaged_run"]


def test_one_run_says_that_the_spread_is_unknown(tmp_path: Path) -> None:
    (cell,) = summarise([_run(tmp_path, make_info())]).cells
    assert {"one_run", "few_samples"} <= {doubt.code for doubt in cell.doubts}
    few = next(doubt for doubt in cell.doubts if doubt.code == "few_samples")
    assert few.what == "P99 needs 368 requests, has 50"


def test_summarise_imports_neither_engine_nor_load_nor_figures() -> None:
    code = (
        "import sys, json, harness.analysis.cells;"
        "names = ('locust', 'gevent', 'matplotlib', 'sklearn', 'scipy.stats', 'harness.load',"
        " 'harness.engine', 'harness.sweep', 'gguf');"
        "print(json.dumps([m for m in names if m in sys.modules]))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(answer.stdout) == []
