import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from tokenizers import Tokenizer

from harness.calibrate.server.log import OutcomeCode, StreamLog, WrittenLog, read_log

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SAMPLES = Path(__file__).parents[1] / "data" / "peers"  # recorded, cut down to what tools report


@pytest.fixture(autouse=True)
def benchmarks_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])


@pytest.fixture
def peers(benchmarks_on_path: None) -> Any:
    return importlib.import_module("bench_peers")


@pytest.fixture
def reports(benchmarks_on_path: None) -> Any:
    return importlib.import_module("peers_reports")


@pytest.fixture
def commands(benchmarks_on_path: None) -> Any:
    return importlib.import_module("peers_commands")


@pytest.fixture
def tools(benchmarks_on_path: None) -> Any:
    return importlib.import_module("peers_tools")


@pytest.fixture
def job(commands: Any, tmp_path: Path) -> Any:
    return commands.Job(
        base_url="http://127.0.0.1:1",
        folder=tmp_path,
        tokenizer=tmp_path / "tokenizer",
        streams=8,
        requests_per_stream=3,
        ramp_s=2.0,
    )


@pytest.fixture
def cpu() -> int:
    return min(os.sched_getaffinity(0))


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """A cold request, two measured ones, and one that the client left."""
    written = StreamLog()
    ends = [OutcomeCode.COMPLETE] * 3 + [OutcomeCode.DISCONNECTED]
    for number, (ttft_s, gaps_s) in enumerate(
        [(9.0, (9.0, 9.0)), (0.5, (0.25, 0.5)), (0.75, (0.25, 1.0)), (5.0, (5.0,))]
    ):
        arrival_s = 16.0 * number
        row = written.add_request(index=None, arrival_s=arrival_s, is_kernel=True, tokens=3)
        sent_s = arrival_s + ttft_s
        for k, gap_s in enumerate((*gaps_s, 0.0)):
            written.add_event(row, k, sent_s, sent_s)
            sent_s += gap_s
        written.end_request(row, ends[number], blocked=0)
    written.write(tmp_path / "log", settings={})
    return read_log(tmp_path / "log")


def said(reports: Any, **changes: Any) -> Any:
    values = {"requests": 2, "failed": 1, "ttft_p50_s": 0.75, "ttft_p99_s": 1.75}
    between = {"between": reports.Between.GAP, "between_p99_s": 0.5}
    return reports.Said(**{**values, **between, **changes})


@pytest.mark.parametrize(
    ("name", "between", "figures"),
    [
        ("vllm", "gap", (24, 0, 74.67443800032925, 76.92972464035847, 25.09418525005458)),
        ("guidellm", "mean", (24, 0, 71.3200569152832, 74.20158386230469, None)),
        ("aiperf", "gap", (24, 0, 70.67041549999999, 73.41544559999998, 23.73560075)),
        ("genai-bench", "mean", (24, 0, 76.48750800035486, 86.29746532000354, 20.06176335243318)),
        ("locust", "mean", (32, 0, 190.0, 190.0, 19.0)),
    ],
)
def test_a_recorded_report_is_read(
    tools: Any, name: str, between: str, figures: tuple[Any, ...]
) -> None:
    found = tools.TOOLS[name].read(SAMPLES)
    times_ms = [found.ttft_p50_s * 1e3, found.ttft_p99_s * 1e3, found.between_p99_s * 1e3]
    assert (found.requests, found.failed, found.between) == (*figures[:2], between)
    known = [(time_ms, figure) for time_ms, figure in zip(times_ms, figures[2:], strict=True)]
    assert all(time_ms == pytest.approx(figure) for time_ms, figure in known if figure is not None)


def test_guidellms_inter_token_latency_is_not_its_time_per_output_token(reports: Any) -> None:
    # The latter has the first token's wait in it.
    assert reports.read_guidellm(SAMPLES).between_p99_s * 1e3 == pytest.approx(20.0, abs=0.1)


def test_our_run_is_read_from_its_samples(
    reports: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = {"phase": "measure", "error": None, "sent_s": 1.0, "chunk_s": [1.5, 1.75, 2.5]}
    rows = [
        good,
        {**good, "chunk_s": [1.25, 1.5]},
        {**good, "error": "timeout"},
        {**good, "chunk_s": []},
        {**good, "phase": "warmup", "chunk_s": [99.0]},
    ]
    table = SimpleNamespace(to_pylist=lambda: rows)
    run = SimpleNamespace(requests=lambda: table)
    stores = {tmp_path / "store": SimpleNamespace(runs=[run])}
    monkeypatch.setattr(reports, "open_runs", stores.__getitem__)
    found = reports.read_ours(tmp_path)
    assert found == said(
        reports, requests=2, failed=2, ttft_p50_s=0.25, ttft_p99_s=0.5, between_p99_s=0.75
    )


def test_a_cancelled_run_and_a_missing_report_are_refused(reports: Any, tmp_path: Path) -> None:
    sample = json.loads((SAMPLES / "aiperf" / "profile_export_aiperf.json").read_bytes())
    (tmp_path / "aiperf").mkdir()
    written = tmp_path / "aiperf" / "profile_export_aiperf.json"
    written.write_text(json.dumps({**sample, "was_cancelled": True}))
    with pytest.raises(ValueError, match="cancelled"):
        reports.read_aiperf(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"0 files vllm\.json"):
        reports.read_vllm(tmp_path)


def test_the_truth_is_of_the_last_answered_requests(peers: Any, reports: Any, log: Any) -> None:
    row = peers.compare("tool", "1.0", said(reports), log, others_ratio=0.01)
    assert (row.true_ttft_p50_s, row.true_ttft_p99_s, row.true_between_p99_s) == (0.5, 0.75, 1.0)


def test_the_truth_follows_what_the_tool_means(peers: Any, reports: Any, log: Any) -> None:
    mean = said(reports, between=reports.Between.MEAN)
    assert peers.compare("tool", "1.0", mean, log, others_ratio=0.01).true_between_p99_s == 0.625


@pytest.mark.parametrize("requests", [0, 4])
def test_a_report_of_other_requests_is_refused(
    peers: Any, reports: Any, log: Any, requests: int
) -> None:
    with pytest.raises(peers.NoResultError, match=f"{requests} requests of 3 answered"):
        peers.compare("tool", "1.0", said(reports, requests=requests), log, others_ratio=0.01)


def test_the_table_says_milliseconds_and_errors(peers: Any, reports: Any, log: Any) -> None:
    head, names, line = peers.table(
        [peers.compare("tool", "1.0", said(reports), log, others_ratio=0.01)]
    )
    assert line.replace("|", " ").split() == [
        *("tool", "1.0", "2", "1", "750.0", "500.0", "+250.0", "1750.0", "750.0", "+1000.0"),
        *("500.0", "1000.0", "-500.0", "gap", "0.00", "1.0%"),
    ]
    assert [k for k, c in enumerate(line) if c == "|"] == [
        k for k, c in enumerate(head) if c == "|"
    ]
    assert [k for k, c in enumerate(line) if c == "|"] == [
        k for k, c in enumerate(names) if c == "|"
    ]


def test_a_row_of_a_busy_machine_says_so(peers: Any, reports: Any, log: Any) -> None:
    row = peers.compare("tool", "1.0", said(reports), log, others_ratio=0.031)
    assert peers.table([row])[2].endswith(" 3.1% busy")
    log.summary["late_p99_s"] = 0.0021
    assert peers.table([peers.compare("tool", "1.0", said(reports), log, others_ratio=0.01)])[
        2
    ].endswith(" busy")


def test_every_tool_is_told_the_same_load(tools: Any, job: Any) -> None:
    told = {name: " ".join(tool.arguments(job)) for name, tool in tools.TOOLS.items()}
    assert "load.users=8 load.requests=24 " in told["ours"]
    assert "--num-prompts 24 --max-concurrency 8 --num-warmups 8 --request-rate 4 " in told["vllm"]
    assert '"streams": [8], "rampup_duration": 2.0' in told["guidellm"]
    assert "kind=max_requests,count=40 " in told["guidellm"]
    assert "--concurrency 8 --concurrency-ramp-duration 2 " in told["aiperf"]
    assert "--warmup-request-count 8 --request-count 24 " in told["aiperf"]
    assert "--num-concurrency 8 --spawn-rate 4 " in told["genai-bench"]
    assert "--max-requests-per-run 32 " in told["genai-bench"]
    assert "-u 8 -r 4 --run-time 11s" in told["locust"]
    assert all(job.base_url in line for line in told.values())


def test_without_a_ramp_all_streams_begin_at_once(commands: Any, tools: Any, job: Any) -> None:
    at_once = commands.Job(**{name: getattr(job, name) for name in job.__slots__} | {"ramp_s": 0.0})
    told = {name: " ".join(tool.arguments(at_once)) for name, tool in tools.TOOLS.items()}
    assert "--request-rate inf " in told["vllm"]
    assert "--concurrency-ramp-duration" not in told["aiperf"]
    assert "--spawn-rate 8 " in told["genai-bench"]
    assert "-r 8 " in told["locust"]


def test_only_what_has_its_program_is_there(tools: Any, tmp_path: Path) -> None:
    assert tools.environment_of("aiperf", tmp_path) is None
    program = tmp_path / "aiperf" / "bin" / "aiperf"
    program.parent.mkdir(parents=True)
    program.touch()
    assert tools.environment_of("aiperf", tmp_path) == tmp_path / "aiperf"
    assert tools.environment_of("locust", tmp_path) == Path(sys.executable).parents[1]


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_tool_that_does_not_end_is_ended_with_its_children(
    peers: Any, tmp_path: Path, cpu: int
) -> None:
    code = (
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "pathlib.Path('child').write_text(str(child.pid))\n"
        "print('waiting', flush=True)\n"
        "child.wait()"
    )
    with pytest.raises(peers.NoResultError, match="not done after 5 s: waiting"):
        peers.run_limited([sys.executable, "-c", code], tmp_path, cpu=cpu, limit_s=5.0)
    child = int((tmp_path / "child").read_text())
    deadline_s = time.monotonic() + 10.0
    while is_alive(child) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not is_alive(child)


def test_the_last_words_of_a_tool_are_its_reason(peers: Any, tmp_path: Path, cpu: int) -> None:
    code = "print('one\\ntwo\\n\\nthree\\nfour'); raise SystemExit(3)"
    argv = [sys.executable, "-c", code]
    with pytest.raises(peers.NoResultError, match=r"code 3: two / three / four$"):
        peers.run_limited(argv, tmp_path, cpu=cpu, limit_s=60.0)
    others = peers.run_limited(argv, tmp_path, cpu=cpu, limit_s=60.0, good_codes=(0, 3))
    assert 0.0 <= others <= 1.0


def test_a_tool_runs_on_its_core_alone_and_we_do_not_stay_there(
    peers: Any, tmp_path: Path, cpu: int
) -> None:
    before = os.sched_getaffinity(0)
    code = f"import os; raise SystemExit(os.sched_getaffinity(0) != {{{cpu}}})"
    peers.run_limited([sys.executable, "-c", code], tmp_path, cpu=cpu, limit_s=60.0)
    assert os.sched_getaffinity(0) == before


def test_the_tokenizer_counts_words_and_comes_back(peers: Any, tmp_path: Path) -> None:
    folder = peers.write_tokenizer(tmp_path / "tokenizer")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    answer = "".join(f" {k}" for k in range(100))
    assert len(tokenizer.encode(answer).ids) == 100
    ids = tokenizer.encode("any words 7 8").ids
    assert len(ids) == 4
    assert tokenizer.encode(tokenizer.decode(ids)).ids == ids
    assert json.loads((folder / "tokenizer_config.json").read_bytes())["eos_token"] == "</s>"


def test_a_version_is_read_from_the_environment(peers: Any, tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / "genai_bench-0.0.5.dist-info").mkdir(parents=True)
    assert peers.version_in(tmp_path, "genai-bench") == "0.0.5"
    assert peers.version_in(tmp_path, "genai") is None


def test_an_unknown_tool_is_refused_with_the_known_ones(peers: Any) -> None:
    assert peers._tools("aiperf,ours") == ["aiperf", "ours"]
    with pytest.raises(argparse.ArgumentTypeError, match="wrk: not known; choose of ours, vllm"):
        peers._tools("wrk,ours")


def test_absent_tools_are_named_and_nothing_fails(
    peers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["bench_peers.py", "--envs", str(tmp_path), "--tools", "aiperf,guidellm"]
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(peers, "choose_cores", lambda *_: peers.Cores(client=0, server=1))
    monkeypatch.setattr(peers, "allow_sockets", lambda: None)
    assert peers.main() == 0
    printed = capsys.readouterr().out
    assert f"left out: aiperf: not in {tmp_path / 'aiperf'}; --install brings it" in printed
    assert "left out: guidellm: " in printed
