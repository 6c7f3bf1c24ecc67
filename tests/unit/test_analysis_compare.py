import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.analysis.compare import COMPARED, compare_all, compare_cells, holm
from harness.analysis.contract import Rule, mismatches, must_match, run_mismatches
from harness.analysis.metrics import BY_NAME
from harness.analysis.model import Candidate, Cell, Workload
from harness.testing.records import make_config, make_info
from harness.types import Doubt, Estimate, Severity, Verdict, VerdictKind

_TTFT, _RATE = BY_NAME["ttft_p50_s"], BY_NAME["output_tokens_per_s"]
_WORKLOAD = Workload(
    key="w",
    scenario="chat",
    level="users=1",
    closed=True,
    input_tokens=(10, 10),
    output_tokens=(2, 2),
    users=1,
)


def _cell(name: str, figures: dict[str, Any], **changes: Any) -> Cell:
    count = len(next(iter(figures.values())))
    values: dict[str, Any] = {
        "candidate": Candidate(key=name, engine=name, label=name, model="m", hardware="h"),
        "workload": _WORKLOAD,
        "run_ids": tuple(f"{name}-b{i}" for i in range(count)),
        "blocks": tuple(range(count)),
        "n": 10,
        "n_ok": 10,
        "n_failed": 0,
        "n_censored": 0,
        "metrics": {key: Estimate(value=1.0) for key in figures},
        "per_run": {key: tuple(runs) for key, runs in figures.items()},
    }
    return Cell(**{**values, **changes})


def _ttft(a: list[Any], b: list[Any], **changes: Any) -> Verdict:
    left, right = _cell("a", {"ttft_p50_s": a}), _cell("b", {"ttft_p50_s": b}, **changes)
    (verdict,) = compare_cells(left, right, runs={}, metrics=[_TTFT])
    return verdict


def test_a_third_faster_in_four_blocks_is_better() -> None:
    verdict = _ttft([1.0, 1.1, 0.9, 1.0], [1.31, 1.42, 1.18, 1.3])
    assert verdict.kind is VerdictKind.BETTER
    assert verdict.ratio == pytest.approx(1 / 1.3, rel=0.01)
    assert verdict.ci_high is not None
    assert verdict.ci_high < 1
    assert verdict.blocks == 4
    assert _ttft([1.31, 1.42, 1.18, 1.3], [1.0, 1.1, 0.9, 1.0]).kind is VerdictKind.WORSE


def test_for_a_rate_more_is_better() -> None:
    left = _cell("a", {"output_tokens_per_s": [130.0, 131.0, 129.0]})
    right = _cell("b", {"output_tokens_per_s": [100.0, 101.0, 99.5]})
    (verdict,) = compare_cells(left, right, runs={}, metrics=[_RATE])
    assert verdict.kind is VerdictKind.BETTER


def test_blocks_are_paired_by_number_and_sweep() -> None:
    left = _cell("a", {"ttft_p50_s": [1.0, 2.0, 4.0]})
    right = _cell("b", {"ttft_p50_s": [4.4, 1.1, 2.2]}, blocks=(2, 0, 1))
    (verdict,) = compare_cells(left, right, runs={}, metrics=[_TTFT])
    assert verdict.ratio == pytest.approx(1 / 1.1)
    assert verdict.ci_low == pytest.approx(1 / 1.1)
    elsewhere = replace(right, sweeps=("other",) * 3)
    mine = replace(left, sweeps=("mine",) * 3)
    (verdict,) = compare_cells(mine, elsewhere, runs={}, metrics=[_TTFT])
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert "across sweeps" in verdict.reason


def test_a_steady_difference_below_two_percent_is_none() -> None:
    verdict = _ttft([1.0] * 4, [1.01, 1.011, 1.009, 1.01])
    assert verdict.kind is VerdictKind.EQUIVALENT
    assert verdict.reason == "within 10.0 %"


def test_noise_is_inconclusive_and_says_how_many_blocks() -> None:
    verdict = _ttft([1.0, 1.3, 0.8, 1.1], [1.1, 1.0, 1.0, 1.2])
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert verdict.runs_needed is not None
    assert verdict.runs_needed > 4


def test_one_block_is_never_enough() -> None:
    verdict = _ttft([1.0], [9.0])
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert verdict.ratio is None
    assert "repeats=4" in verdict.reason
    assert verdict.blocks == 1


def test_a_percentile_that_no_run_carries_says_what_it_needs() -> None:
    metric = BY_NAME["ttft_p99_s"]
    cells = [_cell(name, {"ttft_p99_s": [None, None]}) for name in "ab"]
    (verdict,) = compare_all(cells, runs={}, metrics=[metric])
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert "368 requests a run" in verdict.reason
    bare = [replace(cell, metrics={}) for cell in cells]
    assert compare_all(bare, runs={}, metrics=[metric]) == ()


def test_holm_steps_down() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm([0.02, 0.02]) == [True, True]
    assert holm([]) == []


def test_an_invalid_cell_is_not_compared() -> None:
    doubt = Doubt(code="x", what="client late", advice="y", severity=Severity.INVALID)
    verdict = _ttft([1.0, 1.0], [2.0, 2.0], doubts=(doubt,))
    assert verdict.kind is VerdictKind.NOT_COMPARABLE
    assert verdict.reason == "b is not valid: client late"


def _facts(**machine: Any) -> dict[str, Any]:
    usual = {"cpu_model": "Test CPU", "cores_allowed": [0, 1], "gpus": []}
    return {"machine": {**usual, **machine}, "model": {"sha256": "m" * 64}}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"emulated": True}, "emulated"),
        ({"schema_version": 9}, "schema version"),
        ({"facts": _facts(cpu_model="Other")}, "CPU"),
        ({"facts": _facts(cores_allowed=[0])}, "CPU cores"),
        ({"facts": _facts(gpus=[{"name": "NVIDIA H200"}])}, "GPUs"),
        ({"facts": {**_facts(), "model": {"sha256": "x"}}}, "model"),
        ({"config": make_config("b", engine={"dtype": "float16"})}, "weights"),
        ({"config": make_config("b", engine={"route": "chat"})}, "route"),
        ({"config": make_config("b", engine={"prefix_cache": True})}, "prefix cache"),
        ({"config": make_config("b", warmup={"mode": "quick"})}, "warm-up"),
    ],
)
def test_what_must_match_forbids_a_verdict(changes: dict[str, Any], name: str) -> None:
    found = must_match(run_mismatches(make_info("a"), make_info("b", **changes)))
    assert [one.name for one in found] == [name]
    infos = {"a-b0": make_info("a"), "b-b0": make_info("b", **changes)}
    left, right = _cell("a", {"ttft_p50_s": [1.0]}), _cell("b", {"ttft_p50_s": [2.0]})
    (verdict,) = compare_cells(left, right, runs=infos, metrics=[_TTFT])
    assert verdict.kind is VerdictKind.NOT_COMPARABLE
    assert verdict.reason.startswith(f"{name}: ")


def test_one_model_in_two_forms_is_the_same_model_with_other_weights() -> None:
    def facts(**model: Any) -> dict[str, Any]:
        return {**_facts(), "model": model}

    file = make_info("a", facts=facts(sha256="q4", file="m.Q4_1.gguf", format="GGUF"))
    old = make_info("a", facts=facts(sha256="q4", file="m.Q4_1.gguf"))
    made = facts(sha256="st", format="safetensors float32", derived_from={"sha256": "q4"})
    folder, twin = make_info("b", facts=made), make_info("c", facts=made)
    (difference,) = must_match(run_mismatches(file, folder))
    assert difference.text == "weights: GGUF against safetensors float32"
    assert must_match(run_mismatches(file, old)) == ()
    assert must_match(run_mismatches(folder, twin)) == ()
    told = make_config("b", engine={"dtype": "float32"})
    assert must_match(run_mismatches(twin, make_info("b", facts=made, config=told))) == ()


def test_like_runs_have_nothing_that_forbids() -> None:
    other = make_config("b", engine={"max_running": 16})
    found = run_mismatches(make_info("a"), make_info("b", config=other))
    assert [(one.name, one.rule) for one in found] == [("max_running", Rule.REPORT)]
    assert found[0].text == "max_running: 8 against 16"


def test_plan_workload_and_realised_lengths_must_match() -> None:
    def cell(tokens: float, chunk: float = 1.0, **changes: Any) -> Cell:
        metrics = {
            "output_tokens_mean": Estimate(value=tokens),
            "tokens_per_chunk": Estimate(value=chunk),
        }
        return _cell("a", {"ttft_p50_s": [1.0]}, metrics=metrics, **changes)

    a, b = make_info("a"), make_info("b", plan_hash="other")
    assert mismatches(cell(100), cell(101.5), [a], [a]) == ()
    assert [m.name for m in mismatches(cell(100), cell(103), [a], [a])] == [
        "realised output tokens"
    ]
    assert [m.name for m in mismatches(cell(100), cell(100), [a], [b])] == ["plan"]
    assert mismatches(cell(100), cell(100), [a], [b, a]) == ()
    other = replace(_WORKLOAD, key="w2", level="users=2")
    assert [m.name for m in mismatches(cell(1), cell(1, workload=other), [a], [a])] == ["workload"]
    (chunks,) = mismatches(cell(100), cell(100, chunk=2.0), [a], [a])
    assert (chunks.name, chunks.rule) == ("tokens a chunk", Rule.REPORT)


@pytest.mark.parametrize("blocks", [4, 6])
def test_the_same_engine_twice_is_rarely_called_different(blocks: int) -> None:
    """A/A over 400 seeds: at least one difference among all metrics in at most about 5 %."""
    said = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        shared = rng.normal(0, 0.03, blocks)
        cells = [
            _cell(
                name,
                {
                    metric.name: np.exp(shared + rng.normal(0, 0.03, blocks)).tolist()
                    for metric in COMPARED
                },
            )
            for name in "abc"
        ]
        verdicts = compare_all(cells, runs={})
        assert len(verdicts) == 3 * len(COMPARED)
        said += any(v.kind in (VerdictKind.BETTER, VerdictKind.WORSE) for v in verdicts)
    assert said / 400 <= 0.07


@pytest.mark.parametrize("blocks", [4, 6])
def test_a_third_is_found_in_a_few_blocks(blocks: int) -> None:
    """30 % more with 2 % noise, six of each hundred seeds may miss it."""
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        cells = [
            _cell(
                name,
                {
                    metric.name: np.exp(math.log(factor) + rng.normal(0, 0.015, blocks)).tolist()
                    for metric in COMPARED
                },
            )
            for name, factor in (("a", 1.3), ("b", 1.0))
        ]
        verdicts = compare_all(cells, runs={})
        found += all(v.kind in (VerdictKind.BETTER, VerdictKind.WORSE) for v in verdicts)
    assert found >= 94
