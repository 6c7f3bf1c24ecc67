"""The reference runs of three real engines: what may be compared, and what is said of it."""

from itertools import combinations
from pathlib import Path

import pytest

from harness.analysis.cells import summarise
from harness.analysis.compare import compare_cells
from harness.analysis.model import Cell, Summary
from harness.cli.slo import load_slo
from harness.paths import reference_dir
from harness.recommend.decide import recommend
from harness.recommend.model import Status
from harness.store import StoredRun, open_runs
from harness.types import Outcome, Verdict, VerdictKind

SLO = load_slo("cpu_small")
FOLDER = reference_dir().parent / "reference_cpu_engines"
ENGINES = {"llamacpp", "vllm_cpu", "transformers"}
BLOCKS = 4


@pytest.fixture(scope="module")
def runs() -> tuple[StoredRun, ...]:
    return open_runs(FOLDER).runs


@pytest.fixture(scope="module")
def summary(runs: tuple[StoredRun, ...]) -> Summary:
    return summarise(runs, slo=SLO)


def cells_at(summary: Summary, label: str) -> dict[str, Cell]:
    found = [cell for cell in summary.cells if cell.workload.label == label]
    return {cell.candidate.engine: cell for cell in found}


def verdicts(summary: Summary, a: Cell, b: Cell) -> list[Verdict]:
    return list(compare_cells(a, b, runs=summary.runs))


def test_all_of_them_are_whole_valid_and_real(runs: tuple[StoredRun, ...]) -> None:
    assert len(runs) == BLOCKS * len(ENGINES)
    assert {run.info.engine for run in runs} == ENGINES
    assert {run.info.outcome for run in runs} == {Outcome.OK}
    assert not any(run.info.emulated for run in runs)
    assert {run.info.block for run in runs} == set(range(BLOCKS))
    for block in range(BLOCKS):
        plans = {run.info.plan_hash for run in runs if run.info.block == block}
        assert len(plans) == 1  # the same one for all three


def test_nothing_of_the_machine_they_ran_on_stands_in_them(runs: tuple[StoredRun, ...]) -> None:
    assert runs
    for run in runs:
        text = (Path(run.folder) / "run.json").read_text()
        assert '"/' not in text.replace('"/health"', "")


@pytest.mark.parametrize("label", ["fixed, users=1", "fixed, users=4"])
def test_the_two_with_the_same_weights_are_compared_and_the_third_with_neither(
    summary: Summary, label: str
) -> None:
    cells = cells_at(summary, label)
    assert set(cells) == ENGINES
    for a, b in combinations(sorted(ENGINES), 2):
        found = verdicts(summary, cells[a], cells[b])
        assert found
        kinds = {verdict.kind for verdict in found}
        if "llamacpp" in {a, b}:
            assert kinds == {VerdictKind.NOT_COMPARABLE}
            assert all(verdict.reason.startswith("weights: ") for verdict in found)
        else:
            assert VerdictKind.NOT_COMPARABLE not in kinds


def test_every_answer_had_the_length_that_was_planned(runs: tuple[StoredRun, ...]) -> None:
    for run in runs:
        rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
        assert len(rows) >= 10
        assert {row["error"] for row in rows} == {None}
        assert {row["output_tokens"] for row in rows} == {24}


def test_none_is_recommended_over_one_with_other_weights(summary: Summary) -> None:
    decision = recommend(summary, slo=SLO, scenario="fixed")
    assert (decision.status, decision.best) == (Status.REFUSED, None)
    assert "weights: GGUF against safetensors float32" in str(decision.refusal)
