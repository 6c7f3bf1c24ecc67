"""Every scenario and experiment: composes, makes prompts, and declares what it measures."""

import shlex
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from harness.config import Lengths, RunConf, Shape
from harness.sweep.compose import register_schemas, to_run_conf
from harness.testing.toy_tokenizers import WordTokenizer
from scenarios.lengths import length_facts
from scenarios.prompts import PromptMaker
from scenarios.wanted import Wanted

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
SCENARIOS = sorted(path.stem for path in (CONF / "scenario").glob("*.yaml"))
OF_THE_DEMO = {"chat", "fixed", "prefill"}
EXPERIMENTS = sorted({path.stem for path in (CONF / "experiment").glob("*.yaml")} & set(SCENARIOS))
MEASURES = {
    "accepted_tokens_per_step",
    "cold_start",
    "drift",
    "interactivity",
    "lora_spread",
    "memory_growth",
    "others_loss",
    "prefill_rate",
    "prefix_hit_ratio",
    "tail_ratio",
    "tokens_per_hour_cost",
    "ttft_by_group",
    "turn_ttft",
}
WANTED = {
    "agent",
    "batch",
    "chat_high_concurrency",
    "code_completion",
    "fixed_128_128",
    "fixed_1k_1k",
    "fixed_8k_1k",
    "heavy_user",
    "latency_critical",
    "long_context",
    "lora",
    "mixed_lengths",
    "prototype",
    "rag",
    "shared_prefix",
    "soak",
    "speculation",
    "trace",
}
OF_A_TRACE = ["load.shape=trace", "load.users=null", "load.trace.path=azure_conv"]


@pytest.fixture(scope="module", autouse=True)
def _hydra() -> Iterator[None]:
    GlobalHydra.instance().clear()
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield
    GlobalHydra.instance().clear()


@cache
def composed(*overrides: str) -> RunConf:
    return to_run_conf(compose("config", overrides=list(overrides)))


def of_scenario(name: str) -> RunConf:
    more = OF_A_TRACE if name == "trace" else []
    return composed(f"scenario={name}", "engine.max_model_len=null", *more)


def test_the_scenarios_are_these() -> None:
    assert set(SCENARIOS) == WANTED | OF_THE_DEMO
    measured = {measure for name in SCENARIOS for measure in of_scenario(name).scenario.measures}
    assert measured == MEASURES


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_makes_prompts_within_its_limits(name: str) -> None:
    conf = of_scenario(name).scenario
    assert conf.name == name
    assert conf.summary
    maker = PromptMaker(conf, WordTokenizer(), "1:0")
    tokens = 700 if conf.lengths is Lengths.TRACE else None
    wanted = (Wanted(index=k, input_tokens=tokens) for k in range(10**6))
    prompts = maker.prompts(list(islice(wanted, 8)))
    assert len({prompt.text for prompt in prompts}) == 8
    for prompt in prompts:
        assert 1 <= prompt.input_tokens <= conf.longest_input_tokens
        assert 1 <= prompt.output_tokens <= conf.longest_output_tokens
        assert (prompt.group is None) == (not conf.groups)
        assert (prompt.lora is None) == (not conf.lora)
        assert prompt.prefix_tokens == conf.prefix_tokens


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_table_has_beyond_the_limits_is_little(name: str) -> None:
    facts = length_facts(of_scenario(name).scenario)
    assert facts.get("clipped_input_ratio", 0) < 0.1
    assert facts.get("clipped_output_ratio", 0) < 0.1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_plays_its_scenario(name: str) -> None:
    conf = composed(f"experiment={name}")
    assert (conf.scenario.name, conf.name) == (name, name)
    assert conf.load.played_levels()


def test_what_needs_a_load_of_its_own_has_an_experiment() -> None:
    assert {"agent", "heavy_user", "mixed_lengths", "soak", "prototype", "batch"} < set(EXPERIMENTS)
    assert composed("experiment=agent").load.shape is Shape.SESSIONS
    assert composed("experiment=trace").load.shape is Shape.TRACE
    assert composed("experiment=batch").load.users == 512
    alone, together = composed("experiment=heavy_user").load.played_levels()
    assert (alone.group_users, together.group_users) == ({"light": 7}, {"light": 7, "heavy": 1})


def test_every_scenario_is_described() -> None:
    text = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    for name in SCENARIOS:
        assert f"`{name}`" in text, name
    for measure in MEASURES:
        assert f"`{measure}`" in text, measure


def test_the_commands_for_a_small_machine_compose_and_fit_its_window() -> None:
    text = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    lines = text.partition("## On a small machine")[2].splitlines()
    commands = [line.split("|")[3].split("`")[1] for line in lines if line.startswith("| `")]
    assert len(commands) >= 9
    for command in commands:
        overrides = [
            part.split(",")[0] if is_swept(part) else part for part in shlex.split(command)
        ]
        conf = composed(*overrides)
        assert "scenario" in command or "experiment" in command
        if "emulate" not in command:
            assert (conf.engine.max_model_len or 512) <= 512
            assert conf.scenario.longest_input_tokens <= 400


def is_swept(override: str) -> bool:
    return "," in override and not set("[{") & set(override)
