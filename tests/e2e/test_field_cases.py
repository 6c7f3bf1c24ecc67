"""Cases from the field that only a whole run can show: failing, slow, late and dying servers.

`tests/data/cases/expected.json` has the right outcomes.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.cells import summarise
from harness.store import open_runs
from harness.testing.command_line import CommandLine, Ended
from harness.testing.records import measured, only_run
from harness.types import Outcome

pytestmark = pytest.mark.timeout(300)  # runs wait for one another on a machine

EXPECTED = json.loads(
    (Path(__file__).parents[1] / "data" / "cases" / "expected.json").read_text(encoding="utf-8")
)


def expect(case: str) -> dict[str, Any]:
    content: dict[str, Any] = EXPECTED[case]["expect"]
    return content


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
        "engine.env.FAKE_BUSY_AFTER=10",  # two of them are the warm-up
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
    rows = [line.replace("│", " ").split() for line in ended.out.splitlines()]
    (figures,) = [row for row in rows if "llamacpp" in row and "-" in row and "100" in row]
    assert figures.count("-") >= 3
    assert not {"0", "0.00", "0.0"} & set(figures)
    (cell,) = summarise([run]).cells
    assert (cell.n_ok, cell.n_failed) == (expected["ok"], expected["failed"])
    assert cell.metrics["error_ratio"].value == expected["error_rate"]
    for name in ("ttft_p50_s", "tpot_p50_s", "e2e_p50_s", "output_tokens_per_s", "requests_per_s"):
        assert cell.metrics[name].value is None


def test_an_equals_sign_in_a_value(bakeoff: CommandLine) -> None:
    """C71: refused with a form that works; the two that work give the path."""
    path = expect("C71")["path"]
    forms = (f"model.path={path}", r"model.path=ckpt/epoch\=9-step\=90.bin", f'model.path="{path}"')
    ended = [bakeoff("plan", "model=file", form, "--cfg", "job") for form in forms]
    assert [one.code for one in ended] == expect("C71")["exit_codes"]
    assert f"'model.path=\"{path}\"'" in ended[0].err
    for one in ended[1:]:
        assert f"path: {path}\n" in one.out
        assert one.err == ""


def test_one_job_of_a_sweep_fails_and_the_others_are_kept(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    """C73: the server of one job says why it cannot start."""
    sweep = ("engine.max_running=1,3,2", "engine.env.FAKE_EXIT_NP=3", "name=c73")
    ended = bakeoff("run", *fake, *sweep)
    expected = expect("C73")
    failed_clearly(ended, expected["exit_code"], "2 ok, 1 failed:", "engine.max_running=3")
    assert "failed to allocate 9 GiB; not enough memory: lower engine.max_running" in ended.err
    runs = open_runs(tmp_path / "results").runs
    good = [run for run in runs if run.info.outcome is Outcome.OK]
    (bad,) = [run for run in runs if run.info.outcome is Outcome.NOT_READY]
    assert len(good) == expected["ok"]
    assert all(len(measured(run)) == 20 for run in good)
    assert "failed to allocate 9 GiB" in str(bad.info.diagnosis)
    assert "failed to allocate 9 GiB" in (bad.folder / "engine.log").read_text()
    assert str(bad.folder.relative_to(tmp_path) / "engine.log") in ended.err
    assert measured(bad) == []
    assert "max_running" in ended.out  # the verdict is over what was measured


@pytest.mark.parametrize("limit_s", [60, 2])
def test_a_server_is_ready_with_its_first_real_answer(
    limit_s: int, bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    """C75: the port opens after 1 s, health is good after 2 s, an answer comes after 3 s."""
    timeline = [
        f"engine.env.FAKE_{k}_S={v}" for k, v in (("LISTEN", 1), ("HEALTH", 2), ("READY", 3))
    ]
    ended = bakeoff("run", *fake, *timeline, f"engine.ready_timeout_s={limit_s}", "name=c75")
    run = only_run(tmp_path / "results")
    expected = expect("C75")
    if limit_s < expected["ready_s"]:
        failed_clearly(
            ended, expected["exit_code_timeout"], "not ready within 2 s", "engine.ready_timeout_s="
        )
        assert "last answer: 503 Loading model" in ended.err
        assert run.info.outcome is Outcome.NOT_READY
        assert (run.info.time_to_ready_s, run.requests().num_rows) == (None, 0)
        return
    assert ended.code == 0
    assert run.info.time_to_ready_s is not None
    assert expected["ready_s"] - 0.2 <= run.info.time_to_ready_s < expected["ready_s"] + 3
    rows = run.requests().to_pylist()
    assert len(measured(run)) == 20
    assert {row["planned_output_tokens"] for row in rows} == {8}  # a probe asks for one token
    (level,) = run.info.levels
    assert all(level.window_start_s <= row["due_s"] for row in measured(run))


def test_a_server_that_dies_under_load(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    """C78, with two levels: the second one is not played on a dead server."""
    ended = bakeoff(
        "run",
        *fake,
        "load=levels",
        "load.levels=[{users: 2, requests: 400}, {users: 1, requests: 5}]",
        "engine.env.FAKE_DIE_S=1.5",
        "name=c78",
    )
    failed_clearly(ended, expect("C78")["exit_code"], "signal 9 (SIGKILL) at", "engine.log")
    run = only_run(tmp_path / "results")
    assert run.info.outcome is Outcome.DIED
    assert "the server ended with signal 9" in str(run.info.diagnosis)
    rows = measured(run)
    good = [row for row in rows if row["error"] is None and row["censored_s"] is None]
    assert len(good) > expect("C78")["ok"]
    assert all(row["output_tokens"] == 8 for row in good)
    assert len(rows) - len(good) <= 12  # it stopped soon, it did not hammer the dead server
    assert {row["level"] for row in rows} == {0}
    assert [level.name for level in run.info.levels] == ["users=2"]
    page = bakeoff("report", "results/c78", "--out", "page.html")
    assert "Traceback" not in page.err
    assert "signal 9" in (tmp_path / "page.html").read_text(encoding="utf-8")
