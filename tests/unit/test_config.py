"""Every check of the configuration, with its exact message."""

from collections.abc import Callable
from typing import Any

import pytest
from omegaconf import OmegaConf

from harness.config import (
    EngineConf,
    HardwareConf,
    LaunchConf,
    LaunchMode,
    LevelConf,
    LoadConf,
    ModelConf,
    PriceConf,
    Route,
    RunConf,
    ScenarioConf,
    Shape,
    SloConf,
    ValidityConf,
    WarmupConf,
    WarmupMode,
)
from harness.errors import ConfigError


def level(**changes: Any) -> LevelConf:
    return LevelConf(**changes)


def checked(**changes: Any) -> None:
    LevelConf(**changes).check("load")


REFUSED: list[tuple[Callable[[], object], str]] = [
    *(
        (
            lambda key=key: EngineConf(name="x", **{key: 0}),
            f"engine.{key}=0: must be an integer >= 1",
        )
        for key in ("max_running", "max_model_len", "tokens_per_step", "threads")
    ),
    (
        lambda: EngineConf(name="x", ready_timeout_s=0),
        "engine.ready_timeout_s=0: must be a finite number > 0 seconds",
    ),
    (
        lambda: EngineConf(name="x", stop_timeout_s=float("inf")),
        "engine.stop_timeout_s=inf: must be a finite number > 0 seconds",
    ),
    (
        lambda: ScenarioConf(name="x", input_tokens=0),
        "scenario.input_tokens=0: must be an integer >= 1 (tokens)",
    ),
    (
        lambda: ScenarioConf(name="x", output_tokens=-1),
        "scenario.output_tokens=-1: must be an integer >= 1 (tokens)",
    ),
    (
        lambda: ScenarioConf(name="x", input_tokens=10, input_tokens_min=11),
        "scenario.input_tokens_min=11: must be between 1 and scenario.input_tokens=10",
    ),
    (
        lambda: ScenarioConf(name="x", output_tokens=10, output_tokens_min=0),
        "scenario.output_tokens_min=0: must be between 1 and scenario.output_tokens=10",
    ),
    (
        lambda: ScenarioConf(name="x", languages=[]),
        "scenario.languages=[]: must be a list of: code, en, zh",
    ),
    (
        lambda: ScenarioConf(name="x", languages=["en", "fr"]),
        "scenario.languages=fr: must be one of: code, en, zh",
    ),
    (checked, "load.users: not given; say how many, load.users=8"),
    (lambda: checked(users=0), "load.users=0: must be an integer >= 1"),
    (lambda: checked(users=1, rate_rps=2.0), "load.rate_rps=2.0: must be absent for users"),
    (
        lambda: checked(shape=Shape.POISSON),
        "load.rate_rps: not given; say load.rate_rps=2",
    ),
    (
        lambda: checked(shape=Shape.POISSON, rate_rps=0.0),
        "load.rate_rps=0.0: must be a finite number > 0 requests per second",
    ),
    (
        lambda: checked(shape=Shape.CONSTANT, rate_rps=float("inf")),
        "load.rate_rps=inf: must be a finite number > 0 requests per second",
    ),
    (
        lambda: checked(shape=Shape.CONSTANT, rate_rps=1.0, users=3),
        "load.users=3: must be absent for constant",
    ),
    (
        lambda: checked(users=1, think_s=-1.0),
        "load.think_s=-1.0: must be a finite number >= 0 seconds",
    ),
    (
        lambda: checked(users=1, think_s=float("inf")),
        "load.think_s=inf: must be a finite number >= 0 seconds",
    ),
    (lambda: checked(users=1, requests=0), "load.requests=0: must be an integer >= 1"),
    (
        lambda: checked(users=1, duration_s=0.0),
        "load.duration_s=0.0: must be a finite number > 0 seconds",
    ),
    (lambda: checked(users=1), "load: needs load.duration_s=30 or load.requests=100"),
    (
        lambda: LoadConf(request_timeout_s=0),
        "load.request_timeout_s=0: must be a finite number > 0 seconds",
    ),
    (
        lambda: LoadConf(drain_timeout_s=-1),
        "load.drain_timeout_s=-1: must be a finite number > 0 seconds",
    ),
    (
        lambda: LoadConf(settle_s=-0.1),
        "load.settle_s=-0.1: must be a finite number >= 0 seconds",
    ),
    (
        lambda: LoadConf(shape=Shape.LEVELS, duration_s=1.0),
        "load.levels=[]: must be a list of at least one level",
    ),
    (
        lambda: LoadConf(shape=Shape.LEVELS, levels=[LevelConf(shape=Shape.LEVELS)]),
        (
            "load.levels[0].shape=levels: must be one shape: levels are not nested, and a search "
            "plays alone"
        ),
    ),
    (
        lambda: LoadConf(shape=Shape.LEVELS, levels=[level(users=1, requests=1), level(users=2)]),
        "load.levels[1]: needs load.levels[1].duration_s=30 or load.levels[1].requests=100",
    ),
    (
        lambda: LoadConf(users=1),
        "load: needs load.duration_s=30 or load.requests=100",
    ),
    (lambda: SloConf(ttft_s=0.0), "slo.ttft_s=0.0: must be a finite number > 0 seconds"),
    (lambda: SloConf(tpot_s=-1.0), "slo.tpot_s=-1.0: must be a finite number > 0 seconds"),
    (
        lambda: SloConf(e2e_s=float("nan")),
        "slo.e2e_s=nan: must be a finite number > 0 seconds",
    ),
    (
        lambda: SloConf(attainment_ratio=99.0),
        "slo.attainment_ratio=99.0: must be in (0, 1], not a percentage",
    ),
    (
        lambda: SloConf(attainment_ratio=0.0),
        "slo.attainment_ratio=0.0: must be in (0, 1], not a percentage",
    ),
    (
        lambda: PriceConf(per_hour=0.0, currency="EUR", date="d", source="s"),
        "hardware.price.per_hour=0.0: must be a finite number > 0 per hour",
    ),
    (
        lambda: LaunchConf(mode=LaunchMode.ATTACH),
        (
            "launch.base_url: not given; say where the server runs: "
            "launch=attach launch.base_url=http://127.0.0.1:8000"
        ),
    ),
    (
        lambda: LaunchConf(mode=LaunchMode.ATTACH, base_url="127.0.0.1:8000"),
        "launch.base_url=127.0.0.1:8000: must be http://HOST:PORT or https://HOST:PORT",
    ),
    (
        lambda: LaunchConf(base_url="http://h:1"),
        "launch.base_url=http://h:1: only with launch=attach",
    ),
    (
        lambda: LaunchConf(port=0),
        "launch.port=0: must be between 1 and 65535, or null for a free one",
    ),
    (
        lambda: LaunchConf(port=65536),
        "launch.port=65536: must be between 1 and 65535, or null for a free one",
    ),
    (lambda: WarmupConf(max_s=0), "warmup.max_s=0: must be a finite number > 0 seconds"),
    (
        lambda: ValidityConf(max_error_ratio=1.1),
        "validity.max_error_ratio=1.1: must be a ratio in [0, 1]",
    ),
    (
        lambda: ValidityConf(max_lag_s=0),
        "validity.max_lag_s=0: must be a finite number > 0 seconds",
    ),
    (lambda: RunConf(repeats=0), "repeats=0: must be an integer >= 1"),
    (lambda: RunConf(seed=-1), "seed=-1: must be an integer >= 0"),
    (lambda: RunConf(name="a/b"), "name=a/b: must be a plain folder name, without slashes"),
    (lambda: RunConf(name=".hidden"), "name=.hidden: must be a plain folder name, without slashes"),
    (lambda: RunConf(name=".."), "name=..: must be a plain folder name, without slashes"),
    (
        lambda: RunConf(
            engine=EngineConf(name="x", max_model_len=100),
            scenario=ScenarioConf(name="x", input_tokens=60, output_tokens=41),
        ),
        (
            "scenario.input_tokens=60 + scenario.output_tokens=41: 101 tokens do not fit "
            "engine.max_model_len=100; raise it or shorten the scenario"
        ),
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[text[:60] for _, text in REFUSED])
def test_what_is_not_allowed_is_refused_in_these_words(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", ["currency", "date", "source"])
def test_a_price_without_its_origin_is_refused(key: str) -> None:
    values = {"currency": "EUR", "date": "2026-11-30", "source": "invoice", key: None}
    with pytest.raises(ConfigError) as caught:
        PriceConf(per_hour=0.2, **values)
    message = str(caught.value)
    assert message.startswith(
        f"hardware.price.{key}: missing beside hardware.price.per_hour=0.2; "
        "a price needs its currency, date and source: hardware.price.currency=EUR "
    )


def test_edges_that_are_allowed() -> None:
    EngineConf(name="x", max_running=1, threads=1)
    ScenarioConf(name="x", input_tokens=1, input_tokens_min=1, output_tokens=1)
    SloConf(attainment_ratio=1.0)
    ValidityConf(max_error_ratio=0.0)
    ValidityConf(max_error_ratio=1.0)
    LaunchConf(port=65535)
    LoadConf(users=1, requests=1, settle_s=0.0)
    PriceConf()
    HardwareConf()
    scenario = ScenarioConf(name="x", input_tokens=60, output_tokens=40)
    RunConf(engine=EngineConf(name="x", max_model_len=100), scenario=scenario, name="a b")


def test_a_load_that_is_blank_is_not_checked_before_its_values_come() -> None:
    load = LoadConf()
    with pytest.raises(ConfigError, match=r"^load.users: not given"):
        load.played_levels()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/", "http://h:8000"),
        ("http://h:8000/v1", "http://h:8000"),
        ("http://h:8000/v1/", "http://h:8000"),
        ("http://h:8000/proxy/v1", "http://h:8000/proxy"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
    ],
)
def test_the_base_url_is_kept_without_the_route(given: str, kept: str) -> None:
    assert LaunchConf(mode=LaunchMode.ATTACH, base_url=given).base_url == kept


def test_one_shape_is_one_level_with_all_its_values() -> None:
    load = LoadConf(shape=Shape.POISSON, rate_rps=2.5, duration_s=30.0, requests=50)
    assert load.played_levels() == [
        LevelConf(shape=Shape.POISSON, rate_rps=2.5, duration_s=30.0, requests=50)
    ]
    assert load.played_levels()[0].label == "poisson=2.5/s"


def test_a_closed_level_that_counts_its_requests_has_no_duration() -> None:
    load = LoadConf(users=8, think_s=0.5, requests=20, duration_s=30.0)
    assert load.played_levels() == [LevelConf(users=8, think_s=0.5, requests=20)]
    assert load.played_levels()[0].label == "users=8"
    assert load.played_levels()[0].is_closed


def test_levels_take_the_length_that_they_do_not_give() -> None:
    load = LoadConf(
        shape=Shape.LEVELS,
        duration_s=10.0,
        levels=[
            LevelConf(users=1),
            LevelConf(users=2, requests=5),
            LevelConf(shape=Shape.CONSTANT, rate_rps=1.0, duration_s=3.0),
            LevelConf(shape=Shape.POISSON, rate_rps=1.0),
        ],
    )
    lengths = [(level.requests, level.duration_s) for level in load.played_levels()]
    assert lengths == [(None, 10.0), (5, None), (None, 3.0), (None, 10.0)]
    assert load.levels[0].duration_s is None  # what was given stays as it was given


def test_levels_take_requests_too() -> None:
    load = LoadConf(shape=Shape.LEVELS, requests=7, levels=[LevelConf(users=1)])
    assert load.played_levels() == [LevelConf(users=1, requests=7)]


@pytest.mark.parametrize("word", ["steady", "STEADY"])
def test_words_are_written_in_lower_case_in_yaml(word: str) -> None:
    merged = OmegaConf.merge(OmegaConf.structured(RunConf), {"warmup": {"mode": word}})
    assert merged.warmup.mode is WarmupMode.STEADY


def test_yaml_becomes_plain_objects_with_checks() -> None:
    content = {
        "engine": {"name": "x", "route": "chat", "args": {"--flag": 1}},
        "model": {"name": "m"},
        "scenario": {"name": "s"},
        "load": {"shape": "levels", "levels": [{"users": 2, "requests": 4}]},
    }
    conf = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(RunConf), content))
    assert isinstance(conf, RunConf)
    expected = EngineConf(name="x", route=Route.CHAT, args={"--flag": 1}, image=None)
    assert conf.engine == expected
    assert conf.model == ModelConf(name="m")
    assert conf.load.played_levels() == [LevelConf(users=2, requests=4)]


def test_a_mutable_default_is_not_shared() -> None:
    first, second = RunConf(), RunConf()
    first.engine.args["x"] = 1
    first.scenario.languages.append("zh")
    assert second.engine.args == {}
    assert second.scenario.languages == ["en"]
