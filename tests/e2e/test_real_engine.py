"""The whole way on the real embedded engine: measured, checked against its raw journal, read."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from harness.load.journal import Entry, Kind, read_entries
from harness.store import StoredRun, open_runs
from harness.testing.command_line import CommandLine, Ended
from harness.types import Outcome

pytestmark = pytest.mark.timeout(400)  # the first time the engine's environment is installed

LEVELS = "[{users: 1, requests: 2}, {users: 2, requests: 4}]"


@pytest.fixture(scope="module")
def bakeoff_here(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """With the user's own cache: the engine is installed once."""
    return CommandLine(cwd=tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def command() -> tuple[str, ...]:
    return (
        "engine.max_running=1,2",
        "scenario.output_tokens=12",
        "scenario.output_tokens_min=8",
        "load=levels",
        f"load.levels={LEVELS}",
        "name=real",
    )


@pytest.fixture(scope="module")
def ended(bakeoff_here: CommandLine, command: tuple[str, ...]) -> Ended:
    return bakeoff_here("run", *command, timeout_s=350)


@pytest.fixture(scope="module")
def runs(bakeoff_here: CommandLine, ended: Ended) -> list[StoredRun]:
    assert ended.code in {0, 3}, ended.err  # 3: a machine so busy that the client was late
    return list(open_runs(bakeoff_here.cwd / "results" / "real").runs)


def test_both_settings_are_measured_and_stored_whole(runs: list[StoredRun]) -> None:
    assert sorted(run.info.config["engine"]["max_running"] for run in runs) == [1, 2]
    for run in runs:
        info = run.info
        assert info.outcome in {Outcome.OK, Outcome.INVALID}
        assert info.ended_at is not None
        assert not info.emulated
        assert info.time_to_ready_s is not None
        assert 0.1 < info.time_to_ready_s < 120
        assert [(level.name, level.planned) for level in info.levels] == [
            ("users=1", 2),
            ("users=2", 4),
        ]
        assert info.identity.version
        assert info.identity.max_running == info.config["engine"]["max_running"]
        assert info.identity.max_model_len_tokens == 512
        assert len(info.facts["model"]["sha256"]) == 64
        assert info.facts["machine"]["cpu_model"]
        assert info.facts["tokenizer"]["exact"] is True
        assert (run.folder / "engine.log").stat().st_size > 0


def test_every_request_was_answered_as_planned(runs: list[StoredRun]) -> None:
    for run in runs:
        rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
        assert len(rows) == 6
        for row in rows:
            assert row["error"] is None
            assert row["tokens_source"] == "usage"
            assert row["output_tokens"] == row["planned_output_tokens"]
            assert 8 <= row["output_tokens"] <= 12
            assert row["prompt_tokens"] == row["planned_input_tokens"]
            assert row["finish_reason"] == "length"
            assert row["clock"] == "kernel"
            assert row["chunk_s"][0] > row["sent_s"] >= row["due_s"]
            assert row["chunk_s"] == sorted(row["chunk_s"])
            assert 1 <= len(row["chunk_s"]) <= row["output_tokens"]
            assert row["stream_end_s"] >= row["chunk_s"][-1]


def entries_by_request(run: StoredRun) -> tuple[float, dict[int, list[Entry]]]:
    zero_s = 0.0
    found: dict[int, list[Entry]] = defaultdict(list)
    for entry in read_entries(run.folder / "raw" / "journal.bin"):
        if entry.kind == Kind.OPEN:
            zero_s = entry.t_s
        elif entry.kind == Kind.RETRY:  # the server had closed an idle connection: sent again
            found[entry.request].clear()
        elif entry.kind != Kind.LEVEL:
            found[entry.request].append(entry)
    return zero_s, found


def test_the_table_says_what_the_raw_journal_says(runs: list[StoredRun]) -> None:
    """Stamps by hand: a chunk's time is that of the read that holds its bytes."""
    for run in runs:
        zero_s, entries = entries_by_request(run)
        rows: list[dict[str, Any]] = run.requests().to_pylist()
        assert len(rows) == len(entries)
        for row in rows:
            mine = entries[row["index"]]
            (sent,) = [entry for entry in mine if entry.kind == Kind.SENT]
            reads = [entry for entry in mine if entry.kind == Kind.READ]
            assert row["sent_s"] == pytest.approx(sent.t_s - zero_s, abs=1e-9)
            assert row["reads"] == len(reads)
            assert {entry.payload for entry in mine if entry.kind == Kind.END} == {b"complete"}
            first = next(entry for entry in reads if b'"text":"' in entry.payload)
            assert row["chunk_s"][0] == pytest.approx(first.t_s - zero_s, abs=1e-9)
            body = b"".join(entry.payload for entry in reads)
            assert f'"completion_tokens":{row["output_tokens"]}'.encode() in body
            assert f'"prompt_tokens":{row["prompt_tokens"]}'.encode() in body


def test_engine_and_machine_were_watched(runs: list[StoredRun]) -> None:
    for run in runs:
        engine = run.engine_samples().to_pylist()
        usage = [row["kv_usage_ratio"] for row in engine if row["kv_usage_ratio"] is not None]
        assert usage
        assert all(0 <= value <= 1 for value in usage)
        assert max(usage) > 0  # seen while it worked
        assert {row["kv_provenance"] for row in engine} <= {"derived", "not_exposed"}
        assert max(row["generation_tokens_total"] for row in engine) > 0
        host = run.host_samples().to_pylist()
        rss = [row["engine_rss_bytes"] for row in host if row["engine_rss_bytes"]]
        assert max(rss) > 80e6  # the model's weights are 92 MB
        assert any(row["client_rss_bytes"] for row in host)


def test_the_readers_read_it(
    bakeoff_here: CommandLine, runs: list[StoredRun], ended: Ended
) -> None:
    assert "max_running=2" in ended.out
    report = bakeoff_here("report", "results/real", "--out", "page.html")
    assert report.code == 0, report.err
    page = (bakeoff_here.cwd / "page.html").read_text(encoding="utf-8")
    for run in runs:
        assert run.info.run_id in page
    compared = bakeoff_here("compare", *(str(run.folder) for run in runs), "--json")
    assert compared.code in {0, 7}, compared.err
    assert "Traceback" not in compared.err
    if all(run.info.outcome is Outcome.OK for run in runs):
        assert compared.code == 0, compared.err
        assert json.loads(compared.out)
    decided = bakeoff_here("recommend", "results/real", "--scenario", "chat", "--json")
    decision = json.loads(decided.out)
    assert (decided.code == 7) == (decision["status"] == "refused")
    assert decision["reasons"]


def test_the_plan_knows_what_is_stored(
    bakeoff_here: CommandLine, command: tuple[str, ...], runs: list[StoredRun]
) -> None:
    planned = bakeoff_here("plan", *command)
    assert planned.code == 0, planned.err
    if all(run.info.outcome is Outcome.OK for run in runs):
        assert "2 runs are stored already" in planned.out
    anew = json.loads(bakeoff_here("plan", *command, "rerun=true", "--json").out)
    assert anew["jobs"] == 2
    assert anew["requests"]["low"] >= 12
    assert Path(bakeoff_here.cwd / "results" / "real").is_dir()
