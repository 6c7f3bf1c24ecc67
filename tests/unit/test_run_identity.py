from dataclasses import replace
from typing import Any

import pytest

from harness.config import (
    EngineConf,
    HardwareConf,
    LaunchConf,
    LoadConf,
    ModelConf,
    PriceConf,
    RunConf,
    ScenarioConf,
    SloConf,
)
from harness.run.identity import content_hash, plain_config, run_id

CONF = RunConf(
    engine=EngineConf(name="llamacpp", max_running=4),
    model=ModelConf(name="tiny"),
    scenario=ScenarioConf(name="chat"),
    load=LoadConf(users=2, requests=4),
    block=3,
)
PRICE = PriceConf(per_hour=1.0, currency="EUR", date="2026-11-30", source="invoice")


def digest(conf: RunConf = CONF, plan: str = "p", model: str | None = "m") -> str:
    return content_hash(conf, plan_hash=plan, model_sha256=model)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"store": "elsewhere"},
        {"rerun": True},
        {"repeats": 9},
        {"slo": SloConf(name="x", ttft_s=1.0)},
        {"hardware": HardwareConf(price=PRICE)},
        {"launch": LaunchConf(port=8080)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_where_it_goes_and_what_it_costs_do_not_make_another_run(changes: dict[str, Any]) -> None:
    assert digest(replace(CONF, **changes)) == digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": EngineConf(name="llamacpp", max_running=5)},
        {"engine": EngineConf(name="llamacpp", max_running=4, args={"x": 1})},
        {"model": ModelConf(name="other")},
        {"scenario": ScenarioConf(name="chat", input_tokens=65)},
        {"load": LoadConf(users=2, requests=5)},
        {"load": LoadConf(users=2, requests=4, request_timeout_s=5.0)},
        {"block": 4},
        {"seed": 2},
    ],
    ids=str,
)
def test_what_would_measure_something_else_makes_another_run(changes: dict[str, Any]) -> None:
    assert digest(replace(CONF, **changes)) != digest()


def test_plan_and_model_are_part_of_it() -> None:
    assert len({digest(), digest(plan="q"), digest(model="n"), digest(model=None)}) == 4
    assert len(digest()) == 64


def test_a_run_is_named_so_that_people_find_it() -> None:
    assert run_id(CONF, "0123456789abcdef") == "llamacpp-chat-b3-01234567"


def test_the_kept_configuration_is_plain_values() -> None:
    plain = plain_config(CONF)
    assert plain["engine"]["route"] == "completions"
    assert plain["load"]["shape"] == "users"
    assert plain["launch"] == {
        "mode": "process",
        "base_url": None,
        "port": None,
        "allow_remote": False,
        "api_key_env": "",
        "tls_verify": True,
        "emulate": None,
    }
    assert (plain["block"], plain["engine"]["threads"]) == (3, None)
