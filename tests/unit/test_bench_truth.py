import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("bench_truth")


@pytest.fixture
def log(truth: Any, tmp_path: Path) -> Any:
    stream_log = importlib.import_module("stream_log")
    written = stream_log.StreamLog()
    for index, arrival_s in ((1, 100.0), (0, 101.0)):
        row = written.add_request(index=index, arrival_s=arrival_s, is_kernel=True, tokens=3)
        for k in range(4):
            due_s = arrival_s + 0.5 + min(k, 2) * 0.25
            written.add_event(row, k, due_s, due_s)
    written.write(tmp_path / "log", settings={})
    return stream_log.read_log(tmp_path / "log")


def row(index: int, sent_s: float, *chunk_s: float, **more: object) -> dict[str, Any]:
    values = {"index": index, "sent_s": sent_s, "chunk_s": list(chunk_s), "phase": "measure"}
    return {**values, "error": None, "reads": 2, "merged_reads": 0, **more}


def test_requests_are_matched_by_index_and_not_by_order(truth: Any, log: Any) -> None:
    rows = [
        row(0, 1.0, 1.625, 1.875, 2.125),
        row(1, 0.0, 0.5, 0.75, 1.5),
        row(5, 0.0, 0.5, phase="warmup"),
    ]
    found = truth.compare(rows, log, users=2, cpu_s=0.7)
    assert found.client.ttft_s == [0.625, 0.5]
    assert found.server.ttft_s == [0.5, 0.5]
    assert found.pair_s == [0.125, 0.0]
    assert found.p99_error_s == 0.125
    assert found.client.gap_s == [0.25, 0.25, 0.25, 0.75]
    assert found.server.gap_s == [0.25] * 4
    assert found.taken_ratio == 1.0
    assert found.errors == 0
    assert found.cpu_s_per_token == pytest.approx(0.1)


def test_a_lost_token_and_a_failed_request_show(truth: Any, log: Any) -> None:
    rows = [row(0, 1.0, 1.5, 2.0, merged_reads=1), row(1, 0.0, 0.5, error="timeout")]
    found = truth.compare(rows, log, users=2)
    assert found.taken_ratio == pytest.approx(2 / 3)
    assert found.errors == 1
    assert found.merged_ratio == 0.5
    assert found.cpu_s_per_token is None


@pytest.mark.parametrize("rows", [[], [row(9, 1.0, 1.5)], [row(0, 1.0)]])
def test_nothing_to_compare_is_no_verdict(truth: Any, log: Any, rows: list[Any]) -> None:
    with pytest.raises(RuntimeError, match="measured requests is found in the log"):
        truth.compare(rows, log, users=2)
