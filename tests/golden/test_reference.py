"""The reference runs: real data that the analysis, the recommender and the report must carry."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from harness.analysis.cells import summarise
from harness.analysis.compare import compare_cells
from harness.analysis.model import Cell, Summary
from harness.cli.slo import load_slo
from harness.paths import reference_dir
from harness.recommend.decide import recommend
from harness.recommend.model import Decision, Status
from harness.store import StoredRun, open_runs
from harness.types import EngineSample, HostSample, Outcome, Record, VerdictKind

SLO = load_slo("cpu_small")
SEEDS = 20
BLOCKS = 4


def read(folder: Path) -> tuple[Summary, tuple[StoredRun, ...]]:
    runs = open_runs(folder).runs
    return summarise(runs, slo=SLO), runs


def decide(summary: Summary) -> Decision:
    return recommend(summary, slo=SLO, scenario="chat")


@pytest.fixture(scope="module")
def reference() -> tuple[Summary, tuple[StoredRun, ...]]:
    return read(reference_dir())


def test_all_reference_runs_are_whole_and_valid(
    reference: tuple[Summary, tuple[StoredRun, ...]],
) -> None:
    summary, runs = reference
    assert len(runs) == 20
    assert {run.info.outcome for run in runs} == {Outcome.OK}
    assert not summary.failed
    assert {cell.workload.scenario for cell in summary.cells} == {"chat", "prefill"}
    assert all(len(cell.blocks) == 5 for cell in summary.cells)


def test_one_cell_carries_a_p99(reference: tuple[Summary, tuple[StoredRun, ...]]) -> None:
    """TPOT's; the TTFT of a full queue differs so much between runs that 638 are worth 102."""
    summary, _ = reference
    cell = next(c for c in summary.cells if c.workload.label == "chat, users=8")
    figure = cell.metrics["tpot_p99_s"]
    assert figure.n_eff is not None
    assert figure.n_eff >= 368
    assert figure.value is not None
    assert figure.ci_low is not None
    assert figure.ci_high is not None
    assert figure.ci_low <= figure.value <= figure.ci_high
    assert cell.metrics["ttft_p99_s"].value is None
    assert (cell.metrics["ttft_p99_s"].needed or 0) > cell.n


def test_lengths_are_those_of_the_plan(reference: tuple[Summary, tuple[StoredRun, ...]]) -> None:
    _, runs = reference
    for run in runs:
        table = run.requests().to_pydict()
        assert table["prompt_tokens"] == table["planned_input_tokens"]
        assert table["output_tokens"] == table["planned_output_tokens"]
        assert set(table["clock"]) == {"kernel"}


def test_the_columns_are_those_of_the_types(
    reference: tuple[Summary, tuple[StoredRun, ...]],
) -> None:
    run = reference[1][0]
    assert run.requests().column_names == list(Record.__dataclass_fields__)
    assert run.engine_samples().column_names == list(EngineSample.__dataclass_fields__)
    assert run.host_samples().column_names == list(HostSample.__dataclass_fields__)


def test_deleting_any_cited_run_changes_the_answer_or_its_certainty(
    reference: tuple[Summary, tuple[StoredRun, ...]], tmp_path: Path
) -> None:
    summary, runs = reference
    decision = decide(summary)
    cited = {run_id for row in decision.evidence if row.cited for run_id in row.run_ids}
    assert cited
    for run_id in sorted(cited):
        rest = [run for run in runs if run.info.run_id != run_id]
        without = decide(summarise(rest, slo=SLO))
        assert certainty(without) != certainty(decision), run_id


def certainty(decision: Decision) -> str:
    """Answer and certainty alone: what was chosen, how sure, and the intervals behind it."""
    bounds = [
        (row.candidate, row.level, row.fit, row.attainment.ci_low, row.n)
        for row in decision.evidence
        if row.cited
    ]
    parts = (decision.status, decision.best, decision.p_best, decision.refusal, bounds)
    return msgspec.json.encode(parts).decode()


def test_the_answer_is_the_same_wherever_the_folder_lies(
    reference: tuple[Summary, tuple[StoredRun, ...]], tmp_path: Path
) -> None:
    shutil.copytree(reference_dir(), tmp_path / "reference")
    again, _ = read(tmp_path / "reference")
    one, two = (json.loads(msgspec.json.encode(decide(s))) for s in (reference[0], again))
    assert one == two
    assert one["status"] in {Status.CHOICE, Status.TIE, Status.REFUSED}


def resampled(cell: Cell, rng: Random) -> tuple[Cell, Cell]:
    """Two arms of the same engine: each block gets two different real runs of one cell."""
    pairs = [rng.sample(range(len(cell.run_ids)), 2) for _ in range(BLOCKS)]
    arms = []
    for side, name in enumerate("AB"):
        chosen = [pair[side] for pair in pairs]
        per_run = {
            metric: tuple(values[i] for i in chosen) for metric, values in cell.per_run.items()
        }
        arms.append(
            replace(
                cell,
                candidate=replace(cell.candidate, key=name, label=name),
                run_ids=tuple(cell.run_ids[i] for i in chosen),
                blocks=tuple(range(BLOCKS)),
                sweeps=tuple("one" for _ in chosen),
                per_run=per_run,
            )
        )
    return arms[0], arms[1]


def test_the_same_engine_twice_is_not_called_better(
    reference: tuple[Summary, tuple[StoredRun, ...]],
) -> None:
    """A/A on replayed real runs: at least 19 of 20 seeds must say no difference, or not enough."""
    summary, _ = reference
    cell = next(c for c in summary.cells if c.workload.label == "chat, users=8")
    quiet = 0
    for seed in range(SEEDS):
        verdicts = compare_cells(*resampled(cell, Random(f"aa:{seed}")), runs={})
        assert verdicts
        quiet += {v.kind for v in verdicts} <= {VerdictKind.EQUIVALENT, VerdictKind.INCONCLUSIVE}
    assert quiet >= SEEDS - 1
