import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from adapters import ADAPTERS
from harness.adapter import ServeContext
from harness.config import (
    EmulateConf,
    EngineConf,
    LaunchConf,
    LaunchMode,
    LoadConf,
    ModelConf,
    RunConf,
    ScenarioConf,
)
from harness.emulate.command import serve
from harness.emulate.engines import WIRES
from harness.emulate.options import add_options, read_options, written_options
from harness.emulate.spec import effective, emulate_spec
from harness.errors import ConfigError
from harness.paths import conf_dir
from harness.sweep.compose import register_schemas, to_run_conf


def parsed(words: Sequence[str]) -> EmulateConf:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return read_options(parser.parse_args(words))


def run_conf(*, engine: EngineConf | None = None, **emulate: Any) -> RunConf:
    return RunConf(
        engine=engine or EngineConf(name="openai"),
        model=ModelConf(name="tiny", served_name="org/tiny"),
        scenario=ScenarioConf(name="fixed", lora=["french"]),
        load=LoadConf(users=1, requests=1),
        launch=LaunchConf(mode=LaunchMode.EMULATE, emulate=EmulateConf(**emulate)),
    )


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"speed": 0.0}, r"speed=0.0: must be a finite number > 0"),
        ({"step_ms": float("nan")}, r"step_ms=nan: must be"),
        ({"slots": 0}, r"slots=0: must be an integer >= 1"),
        ({"error_ratio": 1.5}, r"error_ratio=1.5: must be between 0 and 1"),
        ({"jitter_ratio": 1.0}, r"jitter_ratio=1.0: must be in \[0, 1\)"),
        ({"drift_per_hour": -1.0}, r"drift_per_hour=-1.0: must be a finite number >= 0"),
        ({"kv_blocks": 2, "max_model_len_tokens": 33}, r"max_model_len_tokens=33: .* = 32"),
        ({"slots": 9, "tokens_per_step": 8}, r"tokens_per_step=8: must be at least the slots, 9"),
        ({"stall_every_s": 1.0, "stall_ms": 1000.0}, r"stall_ms=1000: must be below"),
    ],
)
def test_a_bad_knob_is_refused(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"launch\.emulate\.{message}"):
        EmulateConf(**knobs)


def test_the_longest_request_fits_the_cache() -> None:
    assert EmulateConf().longest_tokens == 8192
    assert EmulateConf(kv_blocks=10).longest_tokens == 160
    assert EmulateConf(slots=3000).step_tokens == 3000


def test_emulate_belongs_to_its_launch_mode() -> None:
    assert LaunchConf(mode=LaunchMode.EMULATE).emulate == EmulateConf()
    assert LaunchConf(mode=LaunchMode.EMULATE, emulate=None).emulate == EmulateConf()
    other = RunConf(model=ModelConf(name="m"), load=LoadConf(users=1, requests=1))
    assert other.launch.emulate is None
    with pytest.raises(ConfigError, match=r"launch.emulate: is given; only with launch=emulate"):
        LaunchConf(emulate=EmulateConf(speed=60.0))


def test_the_knobs_are_set_by_overrides() -> None:
    register_schemas()

    def composed(*overrides: str) -> RunConf:
        with initialize_config_dir(str(Path(conf_dir()).resolve()), version_base=None):
            return to_run_conf(compose("config", overrides=["engine=openai", *overrides]))

    conf = composed("launch=emulate", "launch.emulate.speed=60")
    assert conf.launch.emulate == EmulateConf(speed=60.0)
    assert composed("launch=emulate").launch.emulate == EmulateConf()
    assert composed("launch=process").launch.emulate is None
    with pytest.raises(ConfigError, match=r"launch.emulate: is given; only with launch=emulate"):
        composed("launch.emulate.speed=60")


def test_options_say_what_the_knobs_are() -> None:
    assert parsed([]) == EmulateConf()
    conf = EmulateConf(
        slots=7,
        chunked_prefill=False,
        prefix_cache=True,
        step_ms=1e-3,
        memory_growth_bytes_per_hour=1e9,
        stall_every_s=30.0,
    )
    assert parsed(written_options(conf)) == conf
    assert written_options(EmulateConf()) == []
    assert written_options(EmulateConf(step_ms=5.0)) == ["--step-ms", "5.0"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], r"engine=nothing: cannot be emulated; these can: .*openai.*tgi"),
        (["openai", "--speed", "0"], r"^--speed=0.0: must be"),
        (["openai", "--slots", "x"], r"--slots: invalid int value: 'x'; see: bakeoff emulate -"),
        (["openai", "--port", "99999"], r"--port=99999: must be between 0 and 65535"),
        ([], r"required: engine"),
    ],
)
def test_a_bad_command_is_refused_in_a_sentence(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        serve(words)


def test_a_run_starts_the_emulator_with_its_settings() -> None:
    engine = EngineConf(name="openai", max_running=4, max_model_len=512, prefix_cache=True)
    spec = emulate_spec(run_conf(engine=engine, step_ms=5.0), ServeContext(port=8123))
    assert spec.base_url == "http://127.0.0.1:8123"
    assert spec.argv[:4] == (sys.executable, "-m", "harness.emulate", "openai")
    assert spec.argv[4:11] == (
        *("--host", "127.0.0.1", "--port", "8123"),
        *("--served-names", "org/tiny", "french"),
    )
    assert parsed(spec.argv[11:]) == EmulateConf(
        slots=4, max_model_len_tokens=512, prefix_cache=True, step_ms=5.0
    )


def test_an_engine_without_a_wire_is_refused() -> None:
    conf = run_conf(engine=EngineConf(name="nothing"))
    with pytest.raises(ConfigError, match=r"engine=nothing: cannot be emulated; these can: "):
        emulate_spec(conf, ServeContext(port=8123))
    emulated = {name for name, entry in ADAPTERS.items() if "emulate" in entry.launch}
    assert emulated == set(WIRES)


def test_a_setting_is_not_given_twice() -> None:
    engine = EngineConf(name="openai", max_running=4)
    assert effective(EmulateConf(slots=4), engine).slots == 4
    assert effective(EmulateConf(slots=4), EngineConf(name="openai")).slots == 4
    with pytest.raises(ConfigError, match=r"launch.emulate.slots=8: but engine.max_running=4"):
        effective(EmulateConf(slots=8), engine)
    assert effective(EmulateConf(prefix_cache=True), engine).prefix_cache is True
    assert effective(EmulateConf(), engine).prefix_cache is False
    whole = EngineConf(name="openai", chunked_prefill=False, kv_tokens=4096)
    taken = effective(EmulateConf(), whole)
    assert (taken.chunked_prefill, taken.kv_tokens, taken.kv_blocks) == (False, 4096, 256)
    with pytest.raises(ConfigError, match=r"kv_blocks=9000: but engine.kv_tokens=4096; give one"):
        effective(EmulateConf(kv_blocks=9000), whole)


def test_every_knob_is_in_the_docs() -> None:
    rows = (Path(conf_dir()).parent / "docs" / "emulate.md").read_text().splitlines()
    knobs = [row.split("`")[1] for row in rows if row.startswith("| `") and row.count("|") == 4]
    assert knobs == list(EmulateConf.described())
    for name, what in EmulateConf.described().items():
        assert any(row.startswith(f"| `{name}` |") and row.endswith(f"| {what} |") for row in rows)
