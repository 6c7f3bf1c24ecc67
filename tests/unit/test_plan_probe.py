"""Levels of a search: one pattern and one row of lengths at every rate, and fresh prompts."""

from dataclasses import replace

import pytest

from harness.config import (
    GroupConf,
    LevelConf,
    LoadConf,
    RunConf,
    ScenarioConf,
    SearchConf,
    Shape,
    SloConf,
)
from harness.errors import ConfigError
from harness.plan.level import PlannedLevel
from harness.plan.probe import closed_level, probe_level
from harness.plan.tokenizer import ApproximateTokenizer
from harness.types import Request

TOKENIZER = ApproximateTokenizer()
SCENARIO = ScenarioConf(
    name="s", input_tokens=60, input_tokens_min=20, output_tokens=90, output_tokens_min=10
)
CONF = RunConf(
    scenario=SCENARIO,
    slo=SloConf(name="x", ttft_s=1.0),
    load=LoadConf(shape=Shape.SEARCH),
)


def probe(rate_rps: float, first_index: int, conf: RunConf = CONF) -> PlannedLevel:
    return probe_level(
        conf,
        TOKENIZER,
        number=3,
        rate_rps=rate_rps,
        first_index=first_index,
        duration_s=60 / rate_rps,
    )


def sizes(requests: list[Request]) -> list[tuple[int, int, str | None]]:
    return [(one.input_tokens, one.max_output_tokens, one.group) for one in requests]


def test_every_rate_plays_one_pattern_and_one_row_of_lengths() -> None:
    slow, fast = probe(2.0, 10), probe(8.0, 500)
    assert slow.due_s is not None
    assert fast.due_s is not None
    assert slow.count == fast.count > 40
    assert [4 * due for due in fast.due_s] == pytest.approx(list(slow.due_s))
    first, second = list(slow.requests()), list(fast.requests())
    assert sizes(first) == sizes(second)
    assert len(set(sizes(first))) > 30
    assert [one.index for one in second] == list(range(500, 500 + fast.count))
    assert second[0].due_s == fast.due_s[0]


def test_no_prompt_comes_twice_on_one_server() -> None:
    first, second = probe(2.0, 10), probe(2.0, 10 + probe(2.0, 10).count)
    texts = [one.prompt for level in (first, second) for one in level.requests()]
    assert len(set(texts)) == len(texts) > 80
    assert first.sha256 != second.sha256
    burst = LevelConf(users=8, requests=16)
    planned = closed_level(CONF, TOKENIZER, burst, number=1, first_index=1000)
    others = [one.prompt for one in planned.requests()]
    assert len(others) == 16
    assert not set(others) & set(texts)
    assert [one.index for one in planned.requests()] == list(range(1000, 1016))
    assert [(lane.users, lane.count) for lane in planned.lanes] == [(8, 16)]


def test_groups_are_common_too() -> None:
    groups = [
        GroupConf(name="short", input_tokens=10, output_tokens=5),
        GroupConf(name="long", input_tokens=200, output_tokens=50),
    ]
    conf = replace(CONF, scenario=replace(SCENARIO, groups=groups))
    first, second = (list(probe(rate, at, conf).requests()) for rate, at in ((2.0, 0), (5.0, 99)))
    assert sizes(first) == sizes(second)
    assert {one.group for one in first} == {"short", "long"}


def test_burstiness_makes_the_probes_gamma() -> None:
    conf = replace(CONF, load=LoadConf(shape=Shape.SEARCH, burstiness=0.3))
    planned = probe(2.0, 0, conf)
    assert planned.level.label == "gamma(k=0.3)=2/s"
    assert planned.due_s is not None
    poisson = probe(2.0, 0).due_s
    assert poisson is not None
    assert planned.due_s[0] != poisson[0]


def test_a_run_that_confirms_has_a_pattern_and_prompts_of_its_own() -> None:
    search = SearchConf(confirm_rates=[2.0], confirms="run", confirm_number=1)
    again = replace(CONF, load=LoadConf(shape=Shape.SEARCH, search=search))
    first, second = probe(2.0, 0), probe(2.0, 0, again)
    assert first.due_s is not None
    assert second.due_s is not None
    assert first.due_s[0] != second.due_s[0]
    mine = {one.prompt for one in first.requests()}
    assert mine.isdisjoint(one.prompt for one in second.requests())


@pytest.mark.parametrize("rate_rps", [0.0, float("inf"), float("nan"), -1.0])
def test_a_rate_that_is_none_is_refused(rate_rps: float) -> None:
    with pytest.raises(ConfigError, match=r"load\.search\.rate_rps"):
        probe_level(CONF, TOKENIZER, number=0, rate_rps=rate_rps, first_index=0, duration_s=10)
