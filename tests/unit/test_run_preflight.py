"""What is refused before anything starts, and what a prepared job holds."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.config import (
    EngineConf,
    LaunchConf,
    LaunchMode,
    LoadConf,
    ModelConf,
    RecipeConf,
    RunConf,
    ScenarioConf,
    Shape,
    TimeUnit,
    TraceConf,
)
from harness.errors import ConfigError, StoreWriteError
from harness.run.checks import check
from harness.run.preflight import can_prepare, job_recipe, prepare, trace_lines
from harness.testing.toy_model import write_toy_model


def attached(url: str = "http://127.0.0.1:9", **changes: Any) -> RunConf:
    conf = RunConf(
        engine=EngineConf(name="openai"),
        model=ModelConf(name="tiny"),
        scenario=ScenarioConf(name="fixed", input_tokens=10, output_tokens=4),
        load=LoadConf(users=2, requests=4),
        launch=LaunchConf(mode=LaunchMode.ATTACH, base_url=url),
    )
    return replace(conf, **changes)


def refused(conf: RunConf) -> str:
    with pytest.raises(ConfigError) as caught:
        check(conf)
    return str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9", "http://localhost:9", "http://[::1]:9", "http://127.9.9.9"]
)
def test_this_machine_may_be_loaded(url: str) -> None:
    assert check(attached(url)).name == "openai"


@pytest.mark.parametrize("url", ["http://example.org:80", "http://10.0.0.1", "http://0.0.0.0:1"])
def test_another_machine_only_when_it_is_said_to_be_ones_own(url: str) -> None:
    message = refused(attached(url))
    assert message.startswith(f"launch.base_url={url}: ")
    assert message.endswith(
        "is not this machine; a load test of a server that is not yours is an attack. "
        "If it is yours, say launch.allow_remote=true"
    )
    launch = LaunchConf(mode=LaunchMode.ATTACH, base_url=url, allow_remote=True)
    assert check(attached(launch=launch)).name == "openai"


def test_a_key_that_is_not_there_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BAKEOFF_TEST_KEY", raising=False)
    launch = LaunchConf(
        mode=LaunchMode.ATTACH, base_url="http://127.0.0.1:9", api_key_env="BAKEOFF_TEST_KEY"
    )
    assert refused(attached(launch=launch)) == (
        "launch.api_key_env=BAKEOFF_TEST_KEY: not in the environment; run: export BAKEOFF_TEST_KEY"
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"url": "https://127.0.0.1:9"}, "launch.base_url=https://..."),
        ({"load": LoadConf(users=1, requests=1, retries=2)}, "load.retries=2"),
    ],
)
def test_what_our_grpc_client_has_not_is_refused(changes: dict[str, Any], what: str) -> None:
    mii = EngineConf(name="deepspeed_mii")
    check(attached(engine=mii))
    assert refused(attached(engine=mii, **changes)) == (
        f"{what}: engine=deepspeed_mii is measured over gRPC, without TLS, keys and retries; "
        "leave it out"
    )


def test_a_port_that_is_none_is_refused() -> None:
    message = refused(attached("http://127.0.0.1:99999"))
    assert message.startswith("launch.base_url=http://127.0.0.1:99999: not a URL: ")


def test_an_engine_that_cannot_be_started_says_how_to_attach() -> None:
    message = refused(attached(launch=LaunchConf()))
    assert message.startswith(
        "launch.mode=process: engine=openai can only be used with launch=attach"
    )


def test_a_tokenizer_that_is_not_there_is_refused() -> None:
    model = ModelConf(name="tiny", tokenizer="/no/tokenizer.json")
    assert refused(attached(model=model)) == (
        "model.tokenizer=/no/tokenizer.json: no such file; give a tokenizer.json"
    )


def test_more_users_than_open_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.load.wire.open_files.resource.getrlimit", lambda _: (64, 100))
    check(attached(load=LoadConf(users=36, requests=40)))
    assert refused(attached(load=LoadConf(users=37, requests=40))) == (
        "open-file limit 100 is too low for 37 connections; raise it with: ulimit -Hn 101"
    )


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_disk_without_room_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 100_000_000))
    with pytest.raises(ConfigError) as caught:
        prepare(attached(store=str(tmp_path)), lambda _: None)
    message = str(caught.value)
    assert message.startswith(f"store={tmp_path}: 0.1 GB free, this run may need 0.2 GB; free some")
    assert caught.value.exit_code == 2


def test_a_store_that_cannot_be_made_is_a_write_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreWriteError, match=r"store=.*/file/x: Not a directory"):
        prepare(attached(store=str(tmp_path / "file" / "x")), lambda _: None)


def test_a_prepared_job_holds_plan_facts_and_identity(tmp_path: Path) -> None:
    model = write_toy_model(tmp_path / "toy.gguf")
    conf = attached(store=str(tmp_path / "results"), model=ModelConf(name="toy", path=str(model)))
    job = prepare(conf, lambda _: None)
    assert job.conf == conf
    assert job.environment is None
    assert job.model_path == model
    assert job.plan.count == 4
    assert len(job.content_hash) == 64
    assert job.facts["model"]["name"] == "toy"
    assert len(job.facts["model"]["sha256"]) == 64
    assert job.facts["tokenizer"]["exact"] is True
    assert job.facts["machine"]["label"]
    assert job.facts["engine_recipe"] == []
    again = prepare(conf, lambda _: None)
    assert again.content_hash == job.content_hash
    other = prepare(replace(conf, block=1), lambda _: None)
    assert other.content_hash != job.content_hash
    assert other.plan.plan_hash != job.plan.plan_hash  # blocks never share prompts


def test_without_a_model_file_lengths_are_approximate(tmp_path: Path) -> None:
    job = prepare(attached(store=str(tmp_path)), lambda _: None)
    assert job.facts["tokenizer"]["exact"] is False
    assert job.model_path is None


def test_the_wheel_of_a_model_joins_the_recipe_unless_a_file_is_given() -> None:
    engine = EngineConf(name="llamacpp", recipe=RecipeConf(packages=["a==1"]))
    packaged = ModelConf(name="m", package="llm-m==1", package_file="m/x.gguf")
    conf = RunConf(engine=engine, model=packaged)
    assert job_recipe(conf).model_packages == ["llm-m==1"]
    assert conf.engine.recipe.model_packages == []
    own = replace(conf, model=replace(packaged, path="/x.gguf"))
    assert job_recipe(own).model_packages == []


def test_an_attached_server_can_be_prepared_without_installing() -> None:
    assert can_prepare(attached())


def test_the_unit_of_a_trace_is_said_before_anything_starts(tmp_path: Path) -> None:
    """Case C62: stamps in seconds that are read as ms are 1,000 times too fast."""
    path = tmp_path / "mine.jsonl"
    rows = [{"timestamp": 0.2 * i, "input_tokens": 10, "output_tokens": 5} for i in range(3)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for unit, rate in ((TimeUnit.S, "7.5 requests/s"), (TimeUnit.MS, "7,500 requests/s")):
        trace = TraceConf(path=str(path), time_unit=unit)
        load = LoadConf(shape=Shape.TRACE, trace=trace)
        first, *doubts = trace_lines(attached(load=load))
        assert rate in first
        assert f"times read as {unit.value} (as given)" in first
        assert len(doubts) == (1 if unit is TimeUnit.MS else 0)
    assert trace_lines(attached()) == []
