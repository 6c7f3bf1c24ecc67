"""The parts of the recommender on hand-made numbers: bounds, chances, tree, rules, presets."""

import json
import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.special import stdtr

from harness.config import SloConf
from harness.errors import ConfigError
from harness.recommend.best import rank
from harness.recommend.bounds import attainment, requests_needed, share_bounds
from harness.recommend.choice import CHOSEN
from harness.recommend.decide import TREE
from harness.recommend.rules import holds, rules
from harness.recommend.tree import Answer, Leaf, Node, leaves, walk

SLOS = sorted((Path(__file__).parents[2] / "conf" / "slo").glob("*.yaml"))


def test_exact_binomial_bounds() -> None:
    assert share_bounds(40, 40) == pytest.approx((0.025 ** (1 / 40), 1.0))
    assert share_bounds(0, 10) == pytest.approx((0.0, 1 - 0.025**0.1))
    assert share_bounds(0, 0) == (0.0, 1.0)
    assert share_bounds(38, 40) == pytest.approx((0.83080, 0.99389), abs=1e-5)


def test_a_smaller_effective_sample_widens_the_bounds() -> None:
    independent, clustered = attainment(38, 40, None), attainment(38, 40, 10.0)
    assert clustered.value == independent.value == 0.95
    assert clustered.n == 40
    assert clustered.n_eff == 10
    assert independent.ci_low is not None
    assert clustered.ci_low is not None
    assert clustered.ci_low < independent.ci_low


@pytest.mark.parametrize(("target", "needed"), [(0.9, 36), (0.95, 72), (0.99, 368)])
def test_requests_needed_when_all_are_good(target: float, needed: int) -> None:
    assert requests_needed(1.0, target) == needed


def test_a_share_at_the_target_is_never_settled() -> None:
    assert requests_needed(0.9, 0.9) is None


def test_ranking_prefers_the_higher_and_the_lower() -> None:
    values = [[90.0, 92.0, 89.0], [100.0, 101.0, 99.0]]
    up = rank(values, higher_is_better=True)
    down = rank(values, higher_is_better=False)
    assert up.order == (1, 0)
    assert down.order == (0, 1)
    assert up.p_best[1] > 0.99
    assert down.p_best[0] > 0.99
    assert sum(up.p_best) == pytest.approx(1.0)


def test_blocks_are_paired() -> None:
    """A machine that slows down for all in a block takes nothing from the certainty."""
    paired = rank([[100, 50, 75, 60], [90, 45, 67.5, 54]], higher_is_better=True)
    crossed = rank([[100, 50, 75, 60], [45, 90, 54, 67.5]], higher_is_better=True)
    assert paired.p_best[0] > 0.999
    assert crossed.p_best[0] < 0.9


def test_two_agreeing_blocks_are_less_certain_than_five() -> None:
    two = rank([[100, 103], [95, 99]], higher_is_better=True)
    five = rank([[100, 103, 100, 103, 101], [95, 99, 95, 99, 97]], higher_is_better=True)
    assert two.p_best[0] < five.p_best[0] < 1


def test_two_contenders_are_a_paired_t_comparison() -> None:
    """Logs differ by .1 on average with a spread of .1: t = sqrt(3) with 2 degrees of freedom."""
    values = [[math.exp(x) for x in (0.0, 0.1, 0.2)], [1.0, 1.0, 1.0]]
    ranking = rank(values, higher_is_better=True)
    t = 0.1 * math.sqrt(3) / math.hypot(0.1, 0.01)
    assert ranking.gap == pytest.approx(0.1)
    assert ranking.p_best[0] == pytest.approx(float(stdtr(2, t)), abs=0.01)


def test_the_same_engine_twice_is_seldom_chosen() -> None:
    """Noise of 10 % over 3 blocks: at most the 5 % of a 95 % interval, and what 200 trials add."""
    random = np.random.default_rng(7)
    chosen = 0
    for _ in range(200):
        ranking = rank(np.exp(random.normal(0, 0.1, (2, 3))).tolist(), higher_is_better=True)
        chosen += max(ranking.p_best) >= CHOSEN
    assert chosen <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)


def test_equal_candidates_share_the_chance_and_are_near() -> None:
    ranking = rank([[100, 101, 99, 100], [101, 100, 100, 99]], higher_is_better=True)
    assert ranking.p_best[0] == pytest.approx(0.5, abs=0.02)
    assert min(ranking.p_near) > 0.95


def test_one_block_cannot_be_ranked() -> None:
    with pytest.raises(ValueError, match="2 blocks"):
        rank([[1.0], [2.0]], higher_is_better=True)


def test_walking_gives_every_step_with_its_branches() -> None:
    seen: list[str] = []
    low: Leaf[int] = Leaf(name="low", conclude=lambda state: seen.append(f"low {state}"))
    high: Leaf[int] = Leaf(name="high", conclude=lambda state: seen.append(f"high {state}"))
    root: Node[int] = Node(
        test="size",
        question="Is it big?",
        ask=lambda n: Answer(branch="yes" if n > 5 else "no", facts=(f"it is {n}",)),
        branches={"yes": high, "no": low},
    )
    leaf, steps = walk(root, 3)
    leaf.conclude(3)
    assert seen == ["low 3"]
    assert [(s.test, s.answer, s.branches, s.facts) for s in steps] == [
        ("size", "no", ("yes", "no"), ("it is 3",))
    ]


def test_the_tree_ends_in_distinct_named_leaves() -> None:
    names = {leaf.name for leaf in leaves(TREE)}
    assert names >= {"chosen", "tied", "the_only_one", "nothing_fits", "too_few_blocks"}


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("always", True),
        ("gpus==0 and objective=='cost'", True),
        ("gpus>0", False),
        ("gpus==0 or team_hf", True),
        ("gpus>0 and team_hf", False),
        ("team_hf", None),
        ("gpus==0 and team_hf", None),
        ("not gpus==0", False),
        ("app in ('chat','qa')", True),
    ],
)
def test_conditions_know_what_they_do_not_know(when: str, expected: bool | None) -> None:
    facts = {"always": True, "gpus": 0, "objective": "cost", "app": "chat"}
    assert holds(when, facts) is expected


@pytest.mark.parametrize("when", ["__import__('os')", "gpus.real", "(lambda: 1)()", "1 +", "a[0]"])
def test_a_condition_that_is_code_is_refused(when: str) -> None:
    with pytest.raises(ConfigError):
        holds(when, {"gpus": 0, "a": (1,)})


def test_every_shipped_rule_can_be_read() -> None:
    assert len(rules()) == 29
    assert {rule.status for rule in rules()} == {"keep", "prior", "stale", "contra"}
    for rule in rules():
        assert holds(rule.when, {}) is None
        assert rule.engines("prefer", "order", "exclude", "avoid")


@pytest.mark.parametrize("path", SLOS, ids=lambda path: path.stem)
def test_slo_presets_are_slo_confs(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    assert set(content) <= {field.name for field in fields(SloConf)}
    slo = SloConf(**content)
    assert slo.name == path.stem
    if path.stem != "none":
        assert slo.source
        assert json.dumps(content)


def test_the_presets_of_the_method_are_there() -> None:
    names = {path.stem for path in SLOS}
    assert names >= {"none", "cpu_small", "chat", "rag", "agent", "mlperf_llama31_8b_server"}
    content = yaml.safe_load(SLOS[0].with_name("mlperf_llama2_70b_interactive.yaml").read_text())
    assert (content["ttft_s"], content["tpot_s"]) == (0.45, 0.04)
