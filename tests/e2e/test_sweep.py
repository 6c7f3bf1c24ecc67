"""A whole sweep of the stand-in server: verdict, store, what is not measured twice, readers."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.cells import summarise
from harness.analysis.model import Cell
from harness.store import open_runs
from harness.testing.command_line import CommandLine
from harness.types import Outcome

pytestmark = pytest.mark.timeout(300)  # runs wait for one another on a machine


def cells_of(folder: Path) -> list[Cell]:
    return list(summarise(open_runs(folder).runs).cells)


def test_a_sweep_ends_with_its_verdict_and_everything_on_disk(sweep: Any) -> None:
    assert sweep.ended.code == 0, sweep.ended.err
    assert "Traceback" not in sweep.ended.err
    runs = open_runs(sweep.folder).runs
    assert [run.info.outcome for run in runs] == [Outcome.OK] * 4
    blocks = [(run.info.block, run.info.config["engine"]["max_running"]) for run in runs]
    assert sorted(blocks) == [(0, 1), (0, 4), (1, 1), (1, 4)]
    plans = {run.info.plan_hash for run in runs}
    assert len(plans) == 2  # one a block, the same for both settings
    assert {path.stem for path in (sweep.folder / "plans").iterdir()} == plans
    for run in runs:
        assert run.info.ended_at is not None
        assert [level.name for level in run.info.levels] == ["users=4", "poisson=15/s"]
        assert run.engine_samples().num_rows > 1
        assert run.host_samples().num_rows > 1
        assert (run.folder / "engine.log").read_text().startswith("starting\nlistening on")
        kept = ["job.json", "journal.bin", "levels", "warm-up"]
        assert sorted(path.name for path in (run.folder / "raw").iterdir()) == kept
    last = sweep.ended.out.splitlines()[-2:]
    assert last == ["results: store/base", "a page of it: bakeoff report store/base --slo chat"]


def test_four_slots_beat_one_and_the_table_says_so(sweep: Any) -> None:
    cells = {(cell.candidate.label, cell.workload.level): cell for cell in cells_of(sweep.folder)}
    assert len(cells) == 4
    one, four = (
        next(c for (label, level), c in cells.items() if level == "users=4" and slots in label)
        for slots in ("max_running=1", "max_running=4")
    )
    assert one.metrics["ttft_p50_s"].value > 2 * four.metrics["ttft_p50_s"].value  # type: ignore[operator]
    assert one.metrics["output_tokens_per_s"].value < four.metrics["output_tokens_per_s"].value  # type: ignore[operator]
    assert "max_running=4" in sweep.ended.out


def test_the_same_command_again_measures_nothing_and_says_so(sweep: Any) -> None:
    before = sorted(sweep.bakeoff.cwd.rglob("*"))
    again = sweep.bakeoff(*sweep.command)
    assert again.code == 0
    assert "4 runs were stored already" in again.err
    assert "rerun=true measures them again" in again.err
    assert "starting" not in again.err
    assert again.out == sweep.ended.out  # the same verdict
    assert sorted(sweep.bakeoff.cwd.rglob("*")) == before
    plan = sweep.bakeoff("plan", *sweep.command[1:])
    assert plan.code == 0
    assert "4 runs are stored already" in plan.out


def test_a_price_gives_a_cost(sweep: Any) -> None:
    for cell in cells_of(sweep.folder):
        cost, rate = cell.metrics["cost_per_mtok"], cell.metrics["output_tokens_per_s"]
        assert rate.value
        assert cost.value == pytest.approx(3.6 / (3600 * rate.value) * 1e6)


def test_two_runs_of_one_block_are_compared(sweep: Any) -> None:
    pair = [r.folder for r in open_runs(sweep.folder).runs if r.info.block == 0]
    ended = sweep.bakeoff("compare", *map(str, pair), "--json")
    assert ended.code == 0, ended.err
    verdicts = json.loads(ended.out)
    assert verdicts
    assert {verdict["metric"] for verdict in verdicts} >= {"ttft_p50_s", "output_tokens_per_s"}
    text = sweep.bakeoff("compare", *map(str, pair))
    assert text.code == 0
    assert "users=4" in text.out


def test_recommend_gives_a_reasoned_answer(sweep: Any) -> None:
    ended = sweep.bakeoff("recommend", "store/base", "--slo", "chat")
    assert ended.code in {0, 7}
    assert "Traceback" not in ended.err
    assert "max_running=4" in ended.out


def test_a_result_is_found_under_another_name_and_measured_again_when_asked(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    small = ("run", *fake, "load.requests=4", "store=kept")
    assert bakeoff(*small, "name=one").code == 0
    (first,) = open_runs(tmp_path / "kept").runs
    assert first.folder.parent == tmp_path / "kept" / "one"
    again = bakeoff(*small, "name=two")
    assert "1 runs were stored already" in again.err
    assert not (tmp_path / "kept" / "two").exists()
    anew = bakeoff(*small, "name=one", "rerun=true")
    assert anew.code == 0
    assert "stored already" not in anew.err
    names = sorted(run.folder.name for run in open_runs(tmp_path / "kept").runs)
    assert names == [first.info.run_id, f"{first.info.run_id}-2"]  # nothing is overwritten
    assert not (tmp_path / "results").exists()


def test_cfg_job_shows_the_configuration_and_starts_nothing(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    ended = bakeoff("run", *fake, "load.users=5", "--cfg", "job")
    assert ended.code == 0
    assert "users: 5" in ended.out
    assert "name: toy" in ended.out
    assert list(tmp_path.iterdir()) == []


def test_a_scenario_of_ones_own_from_a_folder_of_ones_own(
    bakeoff: CommandLine, fake: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "own" / "scenario"
    folder.mkdir(parents=True)
    (folder / "tickets.yaml").write_text(
        "name: tickets\nsummary: support tickets\ninput_tokens: 20\noutput_tokens: 5\n"
    )
    own = [item for item in fake if not item.startswith("scenario")]
    ended = bakeoff(
        "run", *own, "--config-dir", "own", "scenario=tickets", "load.requests=6", "name=own"
    )
    assert ended.code == 0, ended.err
    (run,) = open_runs(tmp_path / "results").runs
    assert run.info.config["scenario"]["name"] == "tickets"
    rows = run.requests().to_pylist()
    assert {row["planned_output_tokens"] for row in rows} == {5}
    assert {row["planned_input_tokens"] for row in rows} == {20}
