"""Levels of every shape: their lanes, sessions, traces, and what makes two of them equal."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config import (
    GroupConf,
    Lengths,
    LevelConf,
    LoadConf,
    LognormalConf,
    RunConf,
    ScenarioConf,
    Shape,
    SloConf,
    TraceConf,
)
from harness.errors import ConfigError
from harness.plan.answer_tokens import AnswerTokens, answer_tokens
from harness.plan.lanes import LaneSize
from harness.plan.level import PlannedLevel
from harness.plan.plan import Plan, build_plan
from harness.plan.tokenizer import ApproximateTokenizer
from harness.plan.warmup import warmup_requests
from harness.types import Request

TOKENIZER = ApproximateTokenizer()
SCENARIO = ScenarioConf(name="s", input_tokens=30, output_tokens=16, output_tokens_min=8)
GROUPS = replace(
    SCENARIO,
    groups=[
        GroupConf(name="light", input_tokens=20, output_tokens=8),
        GroupConf(name="heavy", input_tokens=90, output_tokens=200, output_tokens_min=200),
    ],
)
CHAT = replace(SCENARIO, turns=4, turns_min=2)
TRACED = replace(SCENARIO, lengths=Lengths.TRACE, input_tokens=40, output_tokens=25)
TRACE = """\
{"timestamp": 0, "input_length": 30, "output_length": 10, "hash_ids": [1, 2]}
{"timestamp": 500, "input_length": 90, "output_length": 20, "hash_ids": [1, 3, 4, 5, 6, 7]}
{"timestamp": 500, "input_length": 20, "output_length": 70, "hash_ids": [8, 9]}
{"timestamp": 2500, "input_length": 0, "output_length": 5, "hash_ids": []}
{"timestamp": 4000, "input_length": 16, "output_length": 25, "hash_ids": [1]}
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "recorded.jsonl"
    path.write_text(TRACE)
    return str(path)


def plan_of(*levels: LevelConf, scenario: ScenarioConf = SCENARIO, **changes: object) -> Plan:
    load = LoadConf(shape=Shape.LEVELS, levels=list(levels))
    conf = replace(RunConf(scenario=scenario, load=load), **changes)  # type: ignore[arg-type]
    return build_plan(conf, TOKENIZER)


def level_of(level: LevelConf, scenario: ScenarioConf = SCENARIO) -> PlannedLevel:
    (planned,) = plan_of(level, scenario=scenario).levels
    return planned


def contents(level: PlannedLevel) -> list[Request]:
    """What a level plays, counted from its own first index."""
    return [replace(one, index=one.index - level.first_index) for one in level.requests()]


def test_each_group_of_users_has_its_own_requests() -> None:
    planned = level_of(LevelConf(group_users={"light": 7, "heavy": 1}, requests=17), GROUPS)
    assert planned.lanes == (
        LaneSize(name="light", users=7, count=15),
        LaneSize(name="heavy", users=1, count=2),
    )
    requests = list(planned.requests())
    assert [one.index for one in requests] == list(range(17))
    assert [one.group for one in requests] == ["light"] * 15 + ["heavy"] * 2
    assert [one.max_output_tokens for one in requests] == [8] * 15 + [200] * 2
    assert len({one.prompt for one in requests}) == 17


def test_a_group_gets_at_least_one_request_and_by_time_what_it_could_play() -> None:
    few = level_of(LevelConf(group_users={"light": 7, "heavy": 1}, requests=3), GROUPS)
    assert [lane.count for lane in few.lanes] == [3, 1]
    timed = level_of(LevelConf(group_users={"light": 2, "heavy": 1}, duration_s=10), GROUPS)
    assert [lane.count for lane in timed.lanes] == [2 * 200, 25]  # 50 ms, and 200 times 2 ms
    assert timed.is_bound
    assert timed.level.label == "light=2+heavy=1"


def test_more_requests_of_a_level_begin_with_the_same_ones() -> None:
    users = {"light": 2, "heavy": 1}
    short = level_of(LevelConf(group_users=users, requests=6), GROUPS)
    long = level_of(LevelConf(group_users=users, requests=12), GROUPS)
    assert short.sha256 == long.sha256
    by_lane = [(contents(one), [lane.count for lane in one.lanes]) for one in (short, long)]
    (few, (light, heavy)), (many, (more, _)) = by_lane
    texts = [one.prompt for one in many]
    assert [one.prompt for one in few[:light]] == texts[:light]
    assert [one.prompt for one in few[light:]] == texts[more : more + heavy]


def test_sessions_of_users_take_places_of_their_own() -> None:
    level = LevelConf(shape=Shape.SESSIONS, users=3, sessions=20, think_s=1)
    planned = level_of(level, CHAT)
    turns = planned.size.turns
    assert (planned.count, planned.planned) == (80, sum(turns))
    assert set(turns) == {2, 3, 4}
    assert planned.lanes == (LaneSize(users=3, count=80),)
    requests = list(planned.requests())
    assert [(one.session, one.turn) for one in requests] == [
        (session, turn) for session, count in enumerate(turns) for turn in range(count)
    ]
    assert all(one.index == 4 * (one.session or 0) + (one.turn or 0) for one in requests)
    assert {one.due_s for one in requests} == {None}
    fewer = level_of(replace(level, sessions=5), CHAT)
    assert list(fewer.size.turns) == list(turns)[:5]
    assert contents(fewer) == contents(planned)[: fewer.planned]


def test_sessions_begin_at_a_rate_and_turns_follow_answers() -> None:
    level = LevelConf(shape=Shape.SESSIONS, rate_rps=2, duration_s=20)
    planned = level_of(level, CHAT)
    assert planned.lanes == ()
    assert planned.due_s is not None
    assert 20 <= len(planned.due_s) <= 60
    assert planned.count == 4 * len(planned.due_s)
    assert planned.size.span_s == 20
    begins = [one.due_s for one in planned.requests() if one.turn == 0]
    assert begins == list(planned.due_s)
    assert {one.due_s for one in planned.requests() if one.turn} == {None}
    pattern = level_of(LevelConf(shape=Shape.POISSON, rate_rps=2, duration_s=20)).due_s
    assert pattern is not None
    assert list(planned.due_s) == list(pattern)


def test_sessions_may_count_their_requests() -> None:
    closed = level_of(LevelConf(shape=Shape.SESSIONS, users=2, requests=50), CHAT)
    assert 50 <= closed.planned <= 53
    assert closed.planned - closed.size.turns[-1] < 50
    opened = level_of(LevelConf(shape=Shape.SESSIONS, rate_rps=1, requests=50), CHAT)
    assert opened.planned == closed.planned or set(opened.size.turns) == {2, 3, 4}
    assert opened.planned - opened.size.turns[-1] < 50 <= opened.planned
    assert opened.due_s is not None
    assert len(opened.due_s) == len(opened.size.turns)
    assert opened.size.span_s == opened.due_s[-1]


def test_sessions_by_time_get_what_users_could_play() -> None:
    level = LevelConf(shape=Shape.SESSIONS, users=2, duration_s=30, think_s=0.95)
    planned = level_of(level, CHAT)  # 3 turns of a second on average
    assert len(planned.size.turns) == 2 * (10 + 1)
    assert planned.is_bound


def test_a_trace_gives_times_lengths_and_shared_blocks(trace: str) -> None:
    level = LevelConf(shape=Shape.TRACE, trace=TraceConf(path=trace, time_scale=2))
    planned = level_of(level, TRACED)
    requests = list(planned.requests())
    assert [one.due_s for one in requests] == [0.0, 1.0, 1.0, 8.0]
    assert [one.input_tokens for one in requests] == [30, 40, 20, 16]
    assert [one.max_output_tokens for one in requests] == [10, 20, 25, 25]
    first, second, third, last = (one.prompt for one in requests)
    assert first[:50] == second[:50]
    assert first[:10] == last[:10]
    assert first[:10] != third[:10]
    assert planned.trace is not None
    told = {
        key: planned.trace[key]
        for key in ("name", "rows_read", "rows_played", "time_unit", "time_scale", "keep_ratio")
    }
    assert told == {
        "name": "recorded.jsonl",
        "rows_read": 5,
        "rows_played": 4,
        "time_unit": "ms",
        "time_scale": 2,
        "keep_ratio": 1.0,
    }
    assert sum(planned.trace["skipped"].values()) == 1
    assert (planned.trace["span_s"], planned.trace["mean_rate_rps"]) == (8.0, 0.5)
    assert (planned.trace["clipped_input"], planned.trace["clipped_output"]) == (1, 1)
    assert json.loads(json.dumps(planned.trace)) == planned.trace


def test_a_trace_may_be_cut_and_may_bring_times_only(trace: str) -> None:
    where = TraceConf(path=trace)
    cut = level_of(LevelConf(shape=Shape.TRACE, trace=where, duration_s=0.5), TRACED)
    assert (cut.count, cut.size.span_s) == (1, 0.5)
    first = level_of(LevelConf(shape=Shape.TRACE, trace=where, requests=3), SCENARIO)
    assert (first.count, first.size.span_s) == (3, 0.5)
    assert [one.input_tokens for one in first.requests()] == [30, 30, 30]
    assert first.trace is not None
    assert (first.trace["rows_played"], first.trace["rows_used"]) == (3, 4)
    assert first.trace["clipped_input"] is None
    assert cut.sha256 == level_of(LevelConf(shape=Shape.TRACE, trace=where), TRACED).sha256


def test_a_trace_is_known_by_its_content(trace: str, tmp_path: Path) -> None:
    def planned(path: str, **changes: object) -> PlannedLevel:
        where = TraceConf(path=path, **changes)  # type: ignore[arg-type]
        return level_of(LevelConf(shape=Shape.TRACE, trace=where), TRACED)

    one = planned(trace)
    copied = tmp_path / "copy.jsonl"
    copied.write_text(TRACE)
    assert planned(str(copied)).sha256 == one.sha256
    assert planned(trace, time_scale=0.5).sha256 != one.sha256
    assert planned(trace, keep_ratio=0.9).sha256 != one.sha256
    Path(trace).write_text(TRACE.replace('"input_length": 16', '"input_length": 17'))
    assert planned(trace).sha256 != one.sha256


def test_a_warm_up_has_lengths_of_the_trace_and_prompts_of_its_own(trace: str) -> None:
    load = LoadConf(shape=Shape.TRACE, trace=TraceConf(path=trace))
    conf = RunConf(scenario=TRACED, load=load)
    warmup = list(warmup_requests(conf, TOKENIZER, 2))
    assert [(one.input_tokens, one.max_output_tokens) for one in warmup] == [(30, 10), (20, 25)]
    (level,) = build_plan(conf, TOKENIZER).levels
    assert {one.prompt for one in warmup}.isdisjoint(one.prompt for one in level.requests())


USERS = LevelConf(users=3, requests=9)
POISSON = LevelConf(shape=Shape.POISSON, rate_rps=4, duration_s=5)


def test_a_level_is_the_same_wherever_it_stands() -> None:
    alone = plan_of(POISSON)
    after = plan_of(USERS, POISSON, LevelConf(users=1, requests=2))
    assert after.levels[1].sha256 == alone.levels[0].sha256
    assert after.levels[1].first_index == 9
    assert contents(after.levels[1]) == contents(alone.levels[0])
    assert after.plan_hash != alone.plan_hash
    assert len({level.sha256 for level in after.levels}) == 3


def test_a_longer_level_goes_on_where_a_shorter_one_ends() -> None:
    short, long = level_of(POISSON), level_of(replace(POISSON, duration_s=15))
    assert short.sha256 == long.sha256
    assert short.count < long.count
    assert contents(short) == contents(long)[: short.count]


def test_equal_levels_of_one_list_play_other_prompts_at_other_times() -> None:
    first, again = plan_of(POISSON, replace(POISSON, duration_s=6)).levels
    assert first.sha256 != again.sha256
    assert first.due_s is not None
    assert again.due_s is not None
    assert first.due_s[0] != again.due_s[0]
    mine = {one.prompt for one in first.requests()}
    assert mine.isdisjoint(one.prompt for one in again.requests())


@pytest.mark.parametrize(
    "change",
    [
        {"rate_rps": 5.0},
        {"shape": Shape.CONSTANT},
        {"shape": Shape.GAMMA, "burstiness": 1.0},
        {"think_s": 1.0},
    ],
)
def test_another_load_is_another_level(change: dict[str, object]) -> None:
    other = level_of(replace(POISSON, **change))  # type: ignore[arg-type]
    assert other.sha256 != level_of(POISSON).sha256


def test_the_length_of_a_ramp_is_part_of_what_it_is() -> None:
    ramp = LevelConf(shape=Shape.RAMP, rate_rps=1, rate_to_rps=9, duration_s=10)
    assert level_of(ramp).sha256 != level_of(replace(ramp, duration_s=20)).sha256


def test_another_scenario_seed_or_block_is_another_level() -> None:
    one = level_of(POISSON).sha256
    assert level_of(POISSON, replace(SCENARIO, input_tokens=31)).sha256 != one
    assert level_of(POISSON, replace(SCENARIO, name="other")).sha256 == one
    assert plan_of(POISSON, seed=2).levels[0].sha256 != one
    assert plan_of(POISSON, block=1).levels[0].sha256 != one


def test_levels_share_a_file_of_prompts_without_repeating_it(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [json.dumps({"prompt": f"Question number {number}?"}) for number in range(12)]
    path.write_text("\n".join(rows))
    scenario = replace(SCENARIO, prompts_file=str(path))
    first, second = plan_of(USERS, LevelConf(users=2, requests=9), scenario=scenario).levels
    asked = [one.prompt for one in first.requests()]
    assert all(text.startswith("Question number") for text in asked)
    later = [one.prompt for one in second.requests()]
    assert len(later) == 9
    assert all("Question number" in text for text in later)
    assert not any(text.startswith("Question number") for text in later)
    assert first.sha256 == level_of(USERS, scenario).sha256
    plan = plan_of(USERS, scenario=scenario)
    assert plan.describe()["prompts"]["prompts_file"]["rows"] == 12
    path.write_text("\n".join(rows[1:]))
    assert level_of(USERS, scenario).sha256 != first.sha256
    path.unlink()
    with pytest.raises(ConfigError, match=r"scenario\.prompts_file=.*cannot be read"):
        plan_of(USERS, scenario=scenario)


def test_empirical_lengths_are_part_of_the_plan_by_their_values() -> None:
    scenario = replace(
        SCENARIO, lengths=Lengths.EMPIRICAL, length_source="azure_conv", output_tokens_min=None
    )
    plan = plan_of(USERS, scenario=scenario)
    assert plan.facts["scenario"]["length_table_sha256"]
    assert "length_source" not in plan.facts["scenario"]
    assert plan.describe()["prompts"]["lengths"]["source"] == "azure_conv"


def test_a_level_in_which_nothing_arrives_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(LevelConf(shape=Shape.POISSON, rate_rps=0.001, duration_s=1))
    assert str(caught.value) == (
        "load.duration_s=1: too short, nothing arrives in poisson=0.001/s; make it longer, or the "
        "rate higher"
    )
    with pytest.raises(ConfigError, match="nothing arrives in sessions"):
        plan_of(LevelConf(shape=Shape.SESSIONS, rate_rps=0.001, duration_s=1), scenario=CHAT)


def test_a_search_has_no_levels_before_it_runs() -> None:
    conf = RunConf(
        scenario=SCENARIO,
        slo=SloConf(name="x", ttft_s=1.0),
        load=LoadConf(shape=Shape.SEARCH),
    )
    plan = build_plan(conf, TOKENIZER)
    assert (plan.levels, plan.count) == ((), 0)
    assert plan.describe()["load"][0]["shape"] == "search"
    bursty = replace(conf, load=LoadConf(shape=Shape.SEARCH, burstiness=0.5))
    assert build_plan(bursty, TOKENIZER).plan_hash != plan.plan_hash


def test_answers_are_as_long_as_the_scenario_says() -> None:
    assert answer_tokens(SCENARIO) == AnswerTokens(low=8, mean=12, high=16)
    assert answer_tokens(GROUPS, "heavy") == AnswerTokens(low=200, mean=200, high=200)
    shares = replace(GROUPS, groups=[replace(GROUPS.groups[0], share=3), GROUPS.groups[1]])
    assert answer_tokens(shares) == AnswerTokens(low=8, mean=(3 * 8 + 200) / 4, high=200)
    log = LognormalConf(
        input_log_mean=3.0, input_log_sigma=0.5, output_log_mean=5.0, output_log_sigma=0.5
    )
    long = replace(SCENARIO, output_tokens=10_000, lengths=Lengths.LOGNORMAL, lognormal=log)
    found = answer_tokens(long)
    assert found.low == pytest.approx(78, rel=0.05)  # exp(5 - 1.2816 * 0.5)
    assert found.mean == pytest.approx(168.2, rel=0.02)  # exp(5 + 0.5^2 / 2)
    assert found.high == pytest.approx(282, rel=0.05)
    assert answer_tokens(replace(long, output_tokens=100)).high == 100
