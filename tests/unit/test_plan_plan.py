"""The plan: pure, lazy, the same for every engine, and its hash covers what makes it."""

import json
from dataclasses import replace

import pytest

from harness.config import (
    EngineConf,
    LevelConf,
    LoadConf,
    ModelConf,
    RunConf,
    ScenarioConf,
    Shape,
)
from harness.plan.plan import build_plan
from harness.plan.sizes import MAX_BOUND_REQUESTS, level_sizes
from harness.plan.tokenizer import ApproximateTokenizer
from harness.plan.warmup import warmup_requests

TOKENIZER = ApproximateTokenizer()
SCENARIO = ScenarioConf(
    name="chat", input_tokens=40, input_tokens_min=20, output_tokens=16, output_tokens_min=8
)
LOAD = LoadConf(
    shape=Shape.LEVELS,
    levels=[
        LevelConf(users=2, requests=7),
        LevelConf(shape=Shape.POISSON, rate_rps=5, duration_s=4),
        LevelConf(shape=Shape.CONSTANT, rate_rps=10, requests=300),
    ],
)


def conf(**changes: object) -> RunConf:
    base = RunConf(scenario=SCENARIO, load=LOAD)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_levels_follow_each_other_without_a_gap_or_a_repeat() -> None:
    plan = build_plan(conf(), TOKENIZER)
    assert [level.count for level in plan.levels][::2] == [7, 300]
    assert 5 <= plan.levels[1].count <= 40
    requests = [request for level in plan.levels for request in level.requests()]
    assert [request.index for request in requests] == list(range(plan.count))
    assert len({request.prompt for request in requests}) == plan.count
    assert len({request.seed for request in requests}) > plan.count - 3
    assert all(20 <= request.input_tokens <= 40 for request in requests)
    assert all(8 <= request.max_output_tokens <= 16 for request in requests)
    assert all(not request.input_tokens_exact for request in requests)
    assert all(request.temperature == 0.0 for request in requests)


def test_due_times_are_relative_to_the_level_and_absent_when_closed() -> None:
    closed, poisson, constant = build_plan(conf(), TOKENIZER).levels
    assert {request.due_s for request in closed.requests()} == {None}
    due_s = [request.due_s for request in poisson.requests()]
    assert poisson.due_s is not None
    assert due_s == list(poisson.due_s)
    assert [request.due_s for request in constant.requests()] == [k / 10 for k in range(300)]


def test_every_engine_gets_the_same_plan_and_every_block_another() -> None:
    one = build_plan(conf(), TOKENIZER)
    other = build_plan(
        conf(engine=EngineConf(name="vllm"), model=ModelConf(name="m"), name="x", store="y"),
        TOKENIZER,
    )
    assert other.plan_hash == one.plan_hash
    assert list(other.levels[0].requests()) == list(one.levels[0].requests())
    block = build_plan(conf(block=1), TOKENIZER)
    assert block.plan_hash != one.plan_hash
    mine = {request.prompt for request in one.levels[0].requests()}
    assert mine.isdisjoint(request.prompt for request in block.levels[0].requests())


class OtherTokenizer(ApproximateTokenizer):
    def count(self, text: str) -> int:
        return len(text)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"scenario": replace(SCENARIO, input_tokens=41)},
        {"scenario": replace(SCENARIO, output_tokens_min=7)},
        {"scenario": replace(SCENARIO, languages=["zh"])},
        {"load": replace(LOAD, levels=LOAD.levels[:2])},
        {"load": LoadConf(users=3, requests=7)},
    ],
)
def test_the_hash_covers_what_makes_requests(change: dict[str, object]) -> None:
    assert (
        build_plan(conf(**change), TOKENIZER).plan_hash != build_plan(conf(), TOKENIZER).plan_hash
    )


def test_the_hash_follows_the_vocabulary_not_its_file() -> None:
    one = build_plan(conf(), TOKENIZER)
    renamed = build_plan(conf(), ApproximateTokenizer("another file"))
    assert renamed.plan_hash == one.plan_hash
    assert build_plan(conf(), OtherTokenizer()).plan_hash != one.plan_hash


def test_labels_do_not_move_the_hash() -> None:
    labelled = conf(scenario=replace(SCENARIO, name="other", summary="the same"))
    assert build_plan(labelled, TOKENIZER).plan_hash == build_plan(conf(), TOKENIZER).plan_hash


def test_the_description_is_json_and_names_the_requests() -> None:
    plan = build_plan(conf(), TOKENIZER)
    told = json.loads(json.dumps(plan.describe()))
    assert told["plan_hash"] == plan.plan_hash
    assert told["seed"] == "1:0"
    assert [level["first_index"] for level in told["levels"]] == [
        level.first_index for level in plan.levels
    ]
    assert told["load"][1]["rate_rps"] == 5
    assert told["tokenizer"]["exact"] is False


def test_a_level_by_time_gets_what_its_users_could_use_at_most() -> None:
    by_time = conf(load=LoadConf(users=4, duration_s=10))
    (level,) = build_plan(by_time, TOKENIZER).levels
    assert level.count == 4 * 200  # 16 tokens: the 50 ms of the shortest answer
    assert level.is_bound
    longer = replace(SCENARIO, output_tokens=100, output_tokens_min=None)
    assert level_sizes(replace(by_time, scenario=longer))[0].count == 4 * 50  # 2 ms a token
    mixed = replace(SCENARIO, output_tokens=150, output_tokens_min=50)
    assert level_sizes(replace(by_time, scenario=mixed))[0].count == 4 * 50  # 100 on average
    assert level_sizes(conf(load=LoadConf(users=4, duration_s=10, think_s=0.95)))[0].count == 40


def test_levels_by_time_share_the_cap_and_others_do_not_pay() -> None:
    levels = [
        LevelConf(users=100, duration_s=3600),
        LevelConf(users=10, requests=5000),
        LevelConf(users=300, duration_s=3600),
    ]
    counts = level_sizes(conf(load=LoadConf(shape=Shape.LEVELS, levels=levels)))
    assert [size.count for size in counts] == [
        MAX_BOUND_REQUESTS // 4,
        5000,
        MAX_BOUND_REQUESTS * 3 // 4,
    ]


def test_a_large_plan_is_made_lazily() -> None:
    plan = build_plan(conf(load=LoadConf(users=1000, duration_s=36000)), TOKENIZER)
    assert plan.count == MAX_BOUND_REQUESTS
    requests = plan.levels[0].requests()
    assert next(requests).index == 0


def test_warmup_prompts_are_like_the_others_but_nobody_elses() -> None:
    warmup = list(warmup_requests(conf(), TOKENIZER, 8, first_index=400))
    assert [request.index for request in warmup] == list(range(400, 408))
    assert all(20 <= request.input_tokens <= 40 for request in warmup)
    measured = {
        request.prompt
        for level in build_plan(conf(), TOKENIZER).levels
        for request in level.requests()
    }
    assert len(measured) > 300
    assert measured.isdisjoint(request.prompt for request in warmup)
    assert warmup == list(warmup_requests(conf(), TOKENIZER, 8, first_index=400))
