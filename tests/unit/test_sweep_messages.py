"""What a user reads when Hydra or OmegaConf refuses an override: exact sentences."""

from collections.abc import Iterator
from dataclasses import fields

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from harness.config import LoadConf, RunConf
from harness.errors import ConfigError, NotReadyError
from harness.paths import conf_dir
from harness.sweep.compose import register_schemas, to_run_conf
from harness.sweep.messages import clean_message

LOAD_KEYS = ", ".join(field.name for field in fields(LoadConf))
SCENARIOS = ", ".join(sorted(path.stem for path in conf_dir().glob("scenario/*.yaml")))
ENGINES = ", ".join(sorted(path.stem for path in conf_dir().glob("engine/*.yaml")))
ATTACH = (
    "launch.base_url: not given; say where the server runs: "
    "launch=attach launch.base_url=http://127.0.0.1:8000"
)
TOP_KEYS = ", ".join(field.name for field in fields(RunConf))


@pytest.fixture(scope="module", autouse=True)
def _hydra() -> Iterator[None]:
    GlobalHydra.instance().clear()
    register_schemas()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield
    GlobalHydra.instance().clear()


def refused(*overrides: str) -> str:
    try:
        to_run_conf(compose("config", overrides=list(overrides)))
    except (HydraException, OmegaConfBaseException, ConfigError) as error:
        return clean_message(error)
    pytest.fail(f"{overrides} is allowed")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("load.user=3", f"load.user: not known; did you mean load.users? load has: {LOAD_KEYS}"),
        ("load.zzz=3", f"load.zzz: not known; load has: {LOAD_KEYS}"),
        ("repeat=3", f"repeat: not known; did you mean repeats? the top level has: {TOP_KEYS}"),
        (
            "hardware.price.hour=3",
            (
                "hardware.price.hour: not known; did you mean hardware.price.per_hour? "
                "hardware.price has: per_hour, currency, date, source"
            ),
        ),
        ("scenario=nope", f"scenario=nope: not known; choose one of: {SCENARIOS}"),
        ("engine=vlm", f"engine=vlm: not known; choose one of: {ENGINES}"),
        ("warmup.mode=long", "warmup.mode=long: must be one of: quick, steady"),
        ("load.users=many", "load.users=many: must be an integer"),
        ("load.users=1.5", "load.users=1.5: must be an integer"),
        ("load.duration_s=30s", "load.duration_s=30s: must be a number, without a unit"),
        ("rerun=perhaps", "rerun=perhaps: must be true or false"),
        (
            "slo.attainment_ratio=99",
            "slo.attainment_ratio=99.0: must be in (0, 1], not a percentage",
        ),
        ("launch=attach", ATTACH),
        (
            "hardware.price.per_hour=-1",
            "hardware.price.per_hour=-1.0: must be a finite number > 0 per hour",
        ),
        ("load.users=0", "load.users=0: must be an integer >= 1"),
        ("engine.name=???", "engine.name: not given; say engine.name=VALUE"),
    ],
)
def test_each_refusal_is_one_sentence_that_helps(argument: str, message: str) -> None:
    assert refused(argument) == message


@pytest.mark.parametrize(
    "argument", ["model.path=a=b", "launch.base_url=http://[::1]:80", "engine.args=[--foo=1]"]
)
def test_a_value_that_hydra_cannot_read_is_shown_in_quotes(argument: str) -> None:
    message = refused(argument)
    key, _, value = argument.partition("=")
    assert message.startswith(f"{argument}: Hydra cannot read this value (")
    assert message.endswith(
        f"; a value with special characters needs quotes inside the shell's: '{key}=\"{value}\"'"
    )
    assert "\n" not in message


def test_our_own_error_inside_wins_over_what_is_around_it() -> None:
    error = RuntimeError("outer")
    error.__cause__ = NotReadyError("the server did not come up")
    assert clean_message(error) == "the server did not come up"


def test_a_check_that_fails_inside_omegaconf_is_still_ours() -> None:
    with pytest.raises(ConfigError) as caught:
        to_run_conf(compose("config", overrides=["load.think_s=-1"]))
    assert str(caught.value) == "load.think_s=-1.0: must be a finite number >= 0 seconds"


def test_what_is_not_known_is_one_line_without_repetition() -> None:
    error = ValueError("first line\n    full_key: x\nsecond line")
    error.__cause__ = ValueError("second line")
    assert clean_message(error) == "first line; second line"


def test_a_composed_configuration_is_plain_and_typed() -> None:
    conf = to_run_conf(compose("config", overrides=["load.users=3", "load.requests=5"]))
    assert type(conf.load) is LoadConf
    assert (conf.load.users, conf.load.requests) == (3, 5)


def test_references_between_keys_are_resolved() -> None:
    conf = to_run_conf(compose("config", overrides=["name=n${seed}", "seed=4"]))
    assert conf.name == "n4"
