"""Every option of every group and every experiment composes to a configuration that is allowed."""

from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from harness.cli.slo import load_slo
from harness.config import LaunchMode, LoadConf, RunConf, SearchConf, Shape, TraceConf
from harness.errors import ConfigError
from harness.paths import conf_dir
from harness.plan.capacity import peak_connections
from harness.plan.estimate import estimate
from harness.plan.plan import build_plan
from harness.plan.probe import probe_level
from harness.plan.tokenizer import ApproximateTokenizer
from harness.registry import adapter_names, open_adapter
from harness.sweep.compose import register_schemas, to_run_conf

CONF = Path(__file__).parent.parent / "conf"
GROUPS = ("engine", "model", "scenario", "load", "slo", "hardware", "launch", "experiment")
NEEDS = {  # what an option asks for beside itself
    "launch=attach": ["launch.base_url=http://127.0.0.1:8000"],
    "model=file": ["model.path=/models/x.gguf"],
    "load=search": ["slo=chat"],
    "scenario=trace": ["load=trace"],
}
OPTIONS = [
    f"{group}={path.stem}" for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))
]
SLOS = sorted(path.stem for path in (CONF / "slo").glob("*.yaml"))


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


def test_the_groups_are_these_and_none_is_empty() -> None:
    assert {path.name for path in CONF.iterdir() if path.is_dir()} == {*GROUPS, "hydra"}
    assert {option.partition("=")[0] for option in OPTIONS} == set(GROUPS)
    assert conf_dir() == CONF


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes(option: str) -> None:
    group, _, name = option.partition("=")
    # The embedded engine's window is small; the scenarios are for engines with a larger one.
    window = ["engine.max_model_len=null"] if group == "scenario" else []
    conf = composed(option, *window, *NEEDS.get(option, []))
    assert conf.load.shape is Shape.SEARCH or conf.load.played_levels()
    if group in {"engine", "scenario", "slo"}:
        assert getattr(conf, group).name == name


LOADS = sorted(path.stem for path in (CONF / "load").glob("*.yaml"))


def test_every_shape_has_an_option_of_its_name() -> None:
    assert set(LOADS) == {shape.value for shape in Shape}
    for name in LOADS:
        assert composed(f"load={name}", *NEEDS.get(f"load={name}", [])).load.shape.value == name


@pytest.mark.parametrize("name", LOADS)
def test_every_load_can_be_planned_and_estimated(name: str) -> None:
    conf = composed(f"load={name}", *NEEDS.get(f"load={name}", []))
    plan = build_plan(conf, ApproximateTokenizer())
    assert len(plan.levels) == {"search": 0, "levels": 3}.get(name, 1)
    for level in plan.levels:
        first = next(level.requests())
        assert (first.index, bool(first.prompt)) == (level.first_index, True)
        assert first.due_s is None or 0 <= first.due_s < 60
    expected = estimate([conf])
    assert 0 < expected.requests.low <= expected.requests.high
    assert peak_connections(conf) >= 1


def test_the_document_on_loads_has_every_shape_and_key() -> None:
    text = (CONF.parent / "docs" / "load.md").read_text()
    for shape in Shape:
        assert f"\n### {shape.value}\n" in text
    inner = {"confirm_rates", "confirms", "confirm_number"}  # set by the sweep
    keys = {one.name for one in fields(LoadConf)} - {"shape", "search", "trace"}
    keys |= {f"search.{one.name}" for one in fields(SearchConf) if one.name not in inner}
    keys |= {f"trace.{one.name}" for one in fields(TraceConf)}
    assert len(keys) > 25
    assert {key for key in keys if f"load.{key}" not in text} == set()


def test_a_search_plans_its_probes() -> None:
    conf = composed("load=search", "slo=chat")
    tokenizer = ApproximateTokenizer()
    probe = probe_level(conf, tokenizer, number=1, rate_rps=3, first_index=7, duration_s=20)
    assert len(list(probe.requests())) == probe.count > 20


def test_the_default_is_the_embedded_engine_on_a_chat() -> None:
    conf = composed()
    assert (conf.engine.name, conf.scenario.name, conf.slo.name) == ("llamacpp", "chat", "none")
    assert (conf.load.shape, conf.load.users) == (Shape.USERS, 8)
    assert (conf.launch.mode, conf.repeats, conf.store) == (LaunchMode.PROCESS, 1, "results")


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "engine").glob("*.yaml")))
def test_every_engine_has_an_adapter_that_takes_its_configuration(name: str) -> None:
    attached = composed(f"engine={name}", "launch=attach", *NEEDS["launch=attach"])
    adapter = open_adapter(attached.engine, attached.model, LaunchMode.ATTACH)
    assert adapter.name == name


def test_every_adapter_has_a_configuration() -> None:
    options = {option.partition("=")[2] for option in OPTIONS if option.startswith("engine=")}
    assert options == set(adapter_names())


@pytest.mark.parametrize("name", SLOS)
def test_a_preset_reads_the_same_with_and_without_hydra(name: str) -> None:
    slo = load_slo(name)
    assert slo.name == name
    assert slo == composed(f"slo={name}").slo
    limits = (slo.ttft_s, slo.tpot_s, slo.e2e_s)
    assert (name == "none") == all(limit is None for limit in limits)
    assert (name == "none") or slo.source


def test_an_unknown_preset_names_the_choices() -> None:
    with pytest.raises(ConfigError) as caught:
        load_slo("nope")
    assert str(caught.value) == f"slo=nope: not known; choose one of: {', '.join(SLOS)}"


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
def test_what_an_experiment_sweeps_are_keys_of_the_configuration(name: str) -> None:
    config = OmegaConf.load(CONF / "experiment" / f"{name}.yaml")
    swept = OmegaConf.select(config, "hydra.sweeper.params")
    assert swept
    for key, values in swept.items():
        for value in str(values).split(","):
            composed(f"experiment={name}", f"{key}={value}")


def test_every_option_says_what_it_is() -> None:
    for option in OPTIONS:
        group, _, name = option.partition("=")
        lines = (CONF / group / f"{name}.yaml").read_text().splitlines()
        assert any(line.startswith("# ") for line in lines) or name == "none", option


def test_vllm_says_which_gpu_it_needs_and_its_cpu_build_none() -> None:
    on_gpu, on_cpu = composed("engine=vllm").engine, composed("engine=vllm_cpu").engine
    needs = (on_gpu.recipe.compute_capability, on_cpu.recipe.compute_capability)
    assert needs == (7.5, None)
    image = composed("engine=vllm", "launch=docker").engine.image
    assert image is not None
    assert (image.reference.partition(":v")[2], image.needs_gpu) == ("0.33.0", True)
    assert "vllm==0.33.0" in on_gpu.recipe.packages
