"""Cases from the field that only a whole run can show: failing, slow, late and dying servers.

`tests/data/cases/expected.json` has the right outcomes.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.cells import summarise
from harness.store import StoredRun, open_runs
from harness.testing.command_line import CommandLine, Ended
from harness.types import Outcome

EXPECTED = json.loads(
    (Path(__file__).parents[1] / "data" / "cases" / "expected.json").read_text(encoding="utf-8")
)


def expect(case: str) -> dict[str, Any]:
    content: dict[str, Any] = EXPECTED[case]["expect"]
    return content


def only_run(folder: Path) -> StoredRun:
    (run,) = open_runs(folder).runs
    assert run.info.ended_at is not None
    return run


def measured(run: StoredRun) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run.requests().to_pylist()
    return [row for row in rows if row["phase"] == "measure"]


def failed_clearly(ended: Ended, code: int, *says: str) -> None:
    assert "Traceback" not in ended.err
    for words in says:
        assert words in ended.err
    assert ended.code == code


@pytest.mark.parametrize(("case", "file"), [("C18", "C18.http.json"), ("C19", "C19.sse")])
def test_broken_answers_over_a_real_socket(
    case: str, file: str, bakeoff: CommandLine, fake: list[str], cases: Path, tmp_path: Path
) -> None:
    replay = f"engine.env.FAKE_REPLAY={cases / file}"
    ended = bakeoff("run", *fake, replay, "load.requests=4", "name=c")
    expected = expect(case)
    failed_clearly(ended, 3, "4 of 4 requests failed", expected["error_class"])
    rows = measured(only_run(tmp_path / "results"))
    assert [row["error"] for row in rows] == [expected["error_class"]] * 4
    assert {row["http_status"] for row in rows} == {200}
    for row in rows:
        assert len(row["chunk_s"]) == expected.get("partial_tokens", 0)
        if expected["ttft_ms"] is None:
            assert row["error_message"] == expected["message"]
            assert row["chunk_s"] == []
        else:  # the record keeps it; the server's timer is at most late
            assert expected["ttft_ms"] <= (row["chunk_s"][0] - row["sent_s"]) * 1e3 < 2000
            assert row["tokens_source"] in {"chunks", "tokenizer"}


def test_requests_still_running_when_time_is_up_are_cut_off_and_counted(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    """C43, at another size: eight answers end in time, then both users wait for a minute."""
    ended = bakeoff(
        "run",
        *fake,
        "engine.env.FAKE_BUSY_AFTER=12",  # four of them are the warm-up
        "load.requests=null",
        "load.duration_s=4",
        "load.drain_timeout_s=0.5",
        "scenario.output_tokens=200",
        "engine.env.FAKE_TOKEN_S=0.001",
        "name=c43",
    )
    run = only_run(tmp_path / "results")
    rows = measured(run)
    cut = [row for row in rows if row["censored_s"] is not None]
    done = [row for row in rows if row["censored_s"] is None]
    assert (len(done), len(cut)) == (8, 2)
    assert {row["error"] for row in rows} == {None}
    (level,) = run.info.levels
    window_s = level.window_end_s - level.window_start_s
    assert window_s == pytest.approx(4.0, abs=0.01)
    assert level.drained_s - level.window_end_s < 3.0
    for row in cut:
        assert row["censored_s"] == pytest.approx(level.drained_s - row["due_s"], abs=1.0)
        assert 5 <= len(row["chunk_s"]) <= 20  # 200 tokens in 60 s, for about 4.5 s
    assert ended.code == 0  # cut off is neither an error nor invalid
    assert {d.code for d in run.info.doubts} >= {"censored"}
    (cell,) = summarise([run]).cells
    assert (cell.n_ok, cell.n_failed, cell.n_censored) == (8, 0, 2)
    stamps = [t_s for row in cut for t_s in row["chunk_s"] if t_s <= level.window_end_s]
    rate = cell.metrics["output_tokens_per_s"].value
    finished = cell.metrics["output_tokens_per_s_finished"].value
    assert finished == pytest.approx(8 * 200 / window_s)
    assert rate == pytest.approx((8 * 200 + len(stamps)) / window_s)
    assert cell.metrics["error_ratio"].value == 0
    assert cell.metrics["requests_per_s"].value == pytest.approx(8 / window_s)


def test_everything_failed_is_no_zero_and_no_success(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    """C47, with a server that answers 500 to every request of the load."""
    ended = bakeoff("run", *fake, "engine.env.FAKE_STATUS=500", "load.requests=3", "name=c47")
    expected = expect("C47")
    failed_clearly(
        ended, expected["exit_code"], "3 of 3 requests failed", "http_5xx", "told to fail"
    )
    run = only_run(tmp_path / "results")
    assert run.info.outcome is Outcome.INVALID
    assert [row["error"] for row in measured(run)] == ["http_5xx"] * expected["failed"]
    assert {row["output_tokens"] for row in measured(run)} == {None}
    page = bakeoff("report", "results/c47", "--out", "page.html")
    for line in [line for line in page.out.splitlines() if "users=2" in line and "│" in line]:
        figures = [cell.strip() for cell in line.split("│")[3:-1]]
        assert figures.count("-") >= 4
        assert not {"0", "0.00"} & set(figures[:4])
    (cell,) = summarise([run]).cells
    assert (cell.n_ok, cell.n_failed) == (expected["ok"], expected["failed"])
    assert cell.metrics["error_ratio"].value == expected["error_rate"]
    for name in ("ttft_p50_s", "tpot_p50_s", "e2e_p50_s", "output_tokens_per_s", "requests_per_s"):
        assert cell.metrics[name].value is None


def test_an_equals_sign_in_a_value(bakeoff: CommandLine) -> None:
    """C71: refused with a form that works; the two that work give the path."""
    path = expect("C71")["path"]
    forms = (f"model.path={path}", r"model.path=ckpt/epoch\=9-step\=90.bin", f'model.path="{path}"')
    ended = [bakeoff("run", "model=file", form, "--cfg", "job") for form in forms]
    assert [one.code for one in ended] == expect("C71")["exit_codes"]
    assert f"'model.path=\"{path}\"'" in ended[0].err
    for one in ended[1:]:
        assert f"path: {path}\n" in one.out
        assert one.err == ""
    assert bakeoff("plan", "model=file", forms[0]).code == 2


def test_one_job_of_a_sweep_fails_and_the_others_are_kept(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    """C73: the server of the second job says why it cannot start."""
    reason = "ggml_aligned_malloc: failed to allocate 9 GiB"
    ended = bakeoff("run", *fake, f"engine.env.FAKE_EXIT='',{reason},''", "seed=2,3,4", "name=c73")
    del ended  # three by three: see the next lines for the sweep that is looked at
    ended = bakeoff(
        "run", *fake, f"engine.env.FAKE_EXIT='','{reason}'", "load.users=1,2", "name=c73"
    )
    assert ended.code == 0
