from pathlib import Path
from typing import Any

import pytest

from harness.analysis.validity import run_doubts
from harness.testing.records import make_config, make_info, make_record, store_run
from harness.types import (
    Capabilities,
    Clock,
    Doubt,
    ErrorClass,
    HostSample,
    Level,
    Provenance,
    Record,
    RunInfo,
    Severity,
    TokensSource,
)


def _doubts(
    tmp_path: Path, records: list[Record], info: RunInfo | None = None, **more: Any
) -> dict[str, Doubt]:
    run = store_run(tmp_path / "sweep", info or make_info(), records, **more)
    return {doubt.code: doubt for doubt in run_doubts(run)}


def _steady(n: int = 400, **changes: Any) -> list[Record]:
    """Enough requests, evenly spread over the window, and nothing wrong with them."""
    return [
        make_record(
            i,
            **{
                "due_s": i * 10 / n,
                "chunk_s": (i * 10 / n + 0.05, i * 10 / n + 0.06),
                "stream_end_s": i * 10 / n + 0.07,
                **changes,
            },
        )
        for i in range(n)
    ]


def test_a_sound_run_raises_no_doubt(tmp_path: Path) -> None:
    host = [HostSample(t_s=1.0, cpu_total_ratio=0.5, client_cpu_ratio=0.2)]
    assert _doubts(tmp_path, _steady(), host=host) == {}


def test_a_late_client_makes_a_run_invalid(tmp_path: Path) -> None:
    records = _steady()
    late = [make_record(400 + i, due_s=1.0, sent_s=1.05, chunk_s=(1.1, 1.2)) for i in range(8)]
    doubt = _doubts(tmp_path, records + late)["client_late"]
    assert doubt.severity is Severity.INVALID
    assert doubt.where == "users=1"
    assert doubt.what == "8 of 408 requests left more than 5.00 ms late (P99 lag 50.0 ms)"


def test_one_hiccup_among_few_requests_is_a_warning(tmp_path: Path) -> None:
    late = make_record(99, due_s=1.0, sent_s=1.05, chunk_s=(1.1, 1.2))
    assert _doubts(tmp_path, [*_steady(20), late])["client_late"].severity is Severity.WARN


def test_the_lag_may_reach_a_hundredth_of_the_ttft_limit(tmp_path: Path) -> None:
    records = _steady(400, sent_s=None)
    records = [make_record(i, due_s=i * 0.02, sent_s=i * 0.02 + 0.015) for i in range(400)]
    info = make_info(config=make_config(slo={"name": "x", "ttft_s": 2.0}))
    assert "client_late" not in _doubts(tmp_path, records, info)
    assert "client_late" in _doubts(tmp_path / "b", records)


def test_errors_above_the_limit_make_a_run_invalid(tmp_path: Path) -> None:
    failed = [
        make_record(
            400 + i, error=ErrorClass.HTTP_5XX, error_message="boom", chunk_s=(), output_tokens=None
        )
        for i in range(5)
    ]
    doubt = _doubts(tmp_path, _steady() + failed)["errors"]
    assert doubt.severity is Severity.INVALID
    assert doubt.what == "5 of 405 requests failed, most by http_5xx: boom"
    info = make_info(config=make_config(validity={"max_error_ratio": 0.05}))
    assert "errors" not in _doubts(tmp_path / "b", _steady() + failed, info)


def test_nothing_measured_is_invalid(tmp_path: Path) -> None:
    doubt = _doubts(tmp_path, [])["nothing_measured"]
    assert doubt.severity is Severity.INVALID


def test_few_samples_say_how_many_are_needed(tmp_path: Path) -> None:
    doubt = _doubts(tmp_path, _steady(50))["few_samples"]
    assert doubt.what == "P99 needs 368 requests, has 50"
    assert doubt.severity is Severity.NOTE


def test_cut_off_requests_and_a_spent_plan_are_told(tmp_path: Path) -> None:
    level = Level(
        index=0, name="x", shape="users", users=1, window_end_s=10.0, planned=9, exhausted=True
    )
    records = [*_steady(), make_record(401, censored_s=60.0, chunk_s=())]
    found = _doubts(tmp_path, records, make_info(levels=(level,)))
    assert found["censored"].what.startswith("1 of 401")
    assert "9 requests" in found["plan_exhausted"].what


def test_a_cache_that_was_off_and_served_is_told(tmp_path: Path) -> None:
    config = make_config(engine={"prefix_cache": False})
    records = _steady(400, cached_tokens=5)
    found = _doubts(tmp_path, records, make_info(config=config))
    assert found["cache_flattered"].what.startswith("50.0 %")
    on = make_info(config=make_config(engine={"prefix_cache": True}))
    assert "cache_flattered" not in _doubts(tmp_path / "b", records, on)


def test_lengths_off_the_plan_are_told(tmp_path: Path) -> None:
    capabilities = Capabilities(
        forced_length=False,
        token_id_prompts=False,
        usage_in_stream=True,
        kv_metric=Provenance.NOT_EXPOSED,
        prefix_cache_off=True,
        tokenize_route=False,
        metrics=False,
    )
    records = _steady(400, planned_output_tokens=64, prompt_tokens=11)
    found = _doubts(tmp_path, records, make_info(capabilities=capabilities))
    assert "2.0 tokens where 64.0 were planned; the engine cannot" in (
        found["output_length_differs"].what
    )
    assert "11.0" in found["input_length_differs"].what


@pytest.mark.parametrize(
    ("source", "code", "severity"),
    [
        (TokensSource.CHUNKS, "tokens_counted_by_chunks", Severity.WARN),
        (TokensSource.TOKENIZER, "tokens_counted_by_tokenizer", Severity.NOTE),
    ],
)
def test_counts_that_are_not_the_servers_are_told(
    tmp_path: Path, source: TokensSource, code: str, severity: Severity
) -> None:
    found = _doubts(tmp_path, _steady(400, tokens_source=source))
    assert found[code].severity is severity


def test_the_users_clock_and_late_or_merged_reads_are_told(tmp_path: Path) -> None:
    records = _steady(400, clock=Clock.USER, late_s=0.02, reads=10, merged_reads=2)
    found = _doubts(tmp_path, records)
    assert "400 of 400" in found["user_clock"].what
    assert found["late_reads"].severity is Severity.WARN
    assert found["merged_reads"].what.startswith("20.0 %")
    kernel = _doubts(tmp_path / "b", _steady(400, late_s=0.02))
    assert kernel["late_reads"].severity is Severity.NOTE


def test_an_engine_that_leaves_no_core_is_told(tmp_path: Path) -> None:
    found = _doubts(tmp_path, _steady(), make_info(config=make_config(engine={"threads": 2})))
    assert found["cpu_shared"].advice.endswith("engine.threads=1")
    one = make_info(config=make_config(engine={"threads": 1}))
    assert "cpu_shared" not in _doubts(tmp_path / "b", _steady(), one)


def test_busy_cores_are_told(tmp_path: Path) -> None:
    host = [HostSample(t_s=1.0, cpu_total_ratio=0.99, client_cpu_ratio=0.9)]
    found = _doubts(tmp_path, _steady(), host=host)
    assert {"client_busy", "cpu_full"} <= set(found)


def test_other_processes_on_the_machine_are_a_doubt(tmp_path: Path) -> None:
    ours = HostSample(t_s=1.0, cpu_total_ratio=0.55, engine_cpu_ratio=1.0, client_cpu_ratio=0.05)
    busy = HostSample(t_s=1.0, cpu_total_ratio=0.9, engine_cpu_ratio=1.0, client_cpu_ratio=0.05)
    assert "neighbours" not in _doubts(tmp_path / "a", _steady(), host=[ours])
    found = _doubts(tmp_path / "b", _steady(), host=[busy])["neighbours"]
    assert found.what.startswith("other processes used 0.8 of 2 cores")


def test_telemetry_that_costs_more_than_a_hundredth_of_a_core_is_told(tmp_path: Path) -> None:
    def facts(cpu_ratio: float, span_s: float) -> dict[str, Any]:
        return {"telemetry": {"cpu_ratio": cpu_ratio, "span_s": span_s}}

    found = _doubts(tmp_path / "a", _steady(), make_info(facts=facts(0.023, 60.0)))
    assert found["telemetry_cost"].what == "reading engine and machine took 2.30 % of a core"
    for name, one in (("b", facts(0.009, 60.0)), ("c", facts(0.05, 2.0)), ("d", {})):
        assert "telemetry_cost" not in _doubts(tmp_path / name, _steady(), make_info(facts=one))


def test_the_set_up_is_told(tmp_path: Path) -> None:
    config = make_config(
        warmup={"mode": "quick"}, launch={"mode": "attach", "base_url": "http://10.0.0.7:8000"}
    )
    found = _doubts(tmp_path, _steady(), make_info(config=config, emulated=True))
    assert found["quick_warmup"].severity is Severity.NOTE
    assert "10.0.0.7" in found["remote_target"].what
    assert found["emulated"].severity is Severity.WARN
    near = make_config(launch={"mode": "attach", "base_url": "http://localhost:8000"})
    assert "remote_target" not in _doubts(tmp_path / "b", _steady(), make_info(config=near))


def test_a_wait_that_grows_through_the_window_is_not_steady(tmp_path: Path) -> None:
    records = [
        make_record(
            i,
            due_s=i * 0.02,
            chunk_s=(i * 0.02 + 0.05 + i * 0.001, i * 0.02 + 0.06 + i * 0.001),
        )
        for i in range(400)
    ]
    doubt = _doubts(tmp_path, records)["not_steady"]
    assert "the median TTFT went from 118 ms to 383 ms" in doubt.what


def test_output_that_fades_is_not_steady(tmp_path: Path) -> None:
    records = [
        make_record(i, due_s=t, chunk_s=(t + 0.05, t + 0.06))
        for i, t in enumerate([j * 0.01 for j in range(500)] + [5 + j * 0.02 for j in range(240)])
    ]
    assert "output changed by -5" in _doubts(tmp_path, records)["not_steady"].what
