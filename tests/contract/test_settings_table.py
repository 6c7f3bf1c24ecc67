"""Every neutral setting of every engine: said in the engine's words, or refused with a reason."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from adapters import ADAPTERS
from adapters.settings import DECLARED, Words, translate, values_of
from harness.adapter import ServeContext, ServeSpec
from harness.config import (
    SETTINGS,
    EngineConf,
    ImageConf,
    LaunchMode,
    ModelConf,
    ModelFormat,
    SpeculationConf,
)
from harness.errors import ConfigError
from harness.registry import adapter_class

# Values that each differ from what an engine does by itself, with what they need beside them.
VALUES: dict[str, tuple[dict[str, Any], ...]] = {
    "dtype": ({"dtype": "bfloat16"},),
    "quantization": tuple(
        {"quantization": word} for word in ("fp8", "int8", "bnb-4bit", "wf6af16")
    ),
    "kv_dtype": tuple({"kv_dtype": word} for word in ("fp8", "q8_0", "fp8_e5m2", "int8")),
    "max_model_len": ({"max_model_len": 2048},),
    "max_running": ({"max_running": 7}, {"max_running": 1}),
    "tokens_per_step": ({"tokens_per_step": 1024},),
    "memory_fraction": ({"memory_fraction": 0.5},),
    "kv_tokens": ({"kv_tokens": 8192}, {"kv_tokens": 8192, "max_running": 4}),
    "prefix_cache": ({"prefix_cache": True}, {"prefix_cache": False}),
    "chunked_prefill": ({"chunked_prefill": True}, {"chunked_prefill": False}),
    "cuda_graphs": ({"cuda_graphs": False}, {"cuda_graphs": True}),
    "speculation": (
        {"speculation": SpeculationConf(method="ngram", tokens=3)},
        {"speculation": SpeculationConf(method="draft", model="/draft", tokens=3)},
    ),
    "lora": ({"lora": {"fr": "/lora/fr"}},),
    "tp": ({"tp": 2},),
    "pp": ({"pp": 2},),
    "gpus": ({"gpus": [1]},),
    "threads": ({"threads": 3},),
}
STARTED = [name for name, entry in ADAPTERS.items() if {"process", "docker"} & {*entry.launch}]
CELLS = [(engine, key) for engine in STARTED for key in SETTINGS]
NEEDS = {  # what an engine asks for beside the setting that is looked at
    "tgi": {"program": "/opt/text-generation-launcher"},
    "triton": {"args": {"convert_checkpoint": "/convert.py"}},
    "transformers": {"prefix_cache": True},
}


def spec_of(engine: str, **settings: Any) -> ServeSpec:
    """How the engine would be started, with a model on disk: as a process, else in its image."""
    given = {**NEEDS.get(engine, {}), **settings}
    image = ImageConf(reference=f"{engine}:1.2.1")
    conf = EngineConf(name=engine, image=image, **given)
    wanted = adapter_class(engine).model_format
    path = Path("/m.gguf" if wanted is ModelFormat.GGUF else "/model")
    mode = LaunchMode.PROCESS if "process" in ADAPTERS[engine].launch else LaunchMode.DOCKER
    ctx = ServeContext(
        port=18080,
        mode=mode,
        python=Path("/env/bin/python"),
        model_path=path,
        folder=Path("/run"),
        cache_folder=Path("/cache"),
    )
    model = ModelConf(name="m")
    return adapter_class(engine)(conf, model).serve(conf, model, ctx)


def said(spec: ServeSpec) -> set[str]:
    """All that the engine is told, in the order in which it is."""
    steps = chain.from_iterable(step.argv for step in spec.prepare)
    words = [*spec.argv, *(f"{k}={v}" for k, v in spec.env.items()), *spec.files.values(), *steps]
    return {f"{number}:{word}" for number, word in enumerate(words)}


def outcomes(engine: str, key: str) -> Iterator[str]:
    """`said`, `same` (what the engine does anyway) or the reason of a refusal, for each value."""
    plain = said(spec_of(engine))
    for settings in VALUES[key]:
        try:
            yield "same" if said(spec_of(engine, **settings)) == plain else "said"
        except ConfigError as error:
            yield str(error)


def test_the_table_holds_every_setting_and_every_engine_that_we_start() -> None:
    assert set(VALUES) == set(SETTINGS)
    assert len(STARTED) >= 9
    for engine in ADAPTERS:
        assert {*adapter_class(engine).settings} == {*SETTINGS}, engine  # type: ignore[attr-defined]


@pytest.mark.parametrize(("engine", "key"), CELLS)
def test_a_setting_is_said_or_refused_and_never_dropped(engine: str, key: str) -> None:
    found = list(outcomes(engine, key))
    for settings, outcome in zip(VALUES[key], found, strict=True):
        if outcome in {"said", "same"}:
            continue
        keys = "|".join((*settings, *NEEDS.get(engine, {})))
        assert re.match(rf"engine\.({keys})[\w.]*=.+: engine={engine}\W.{{10,}}", outcome), outcome
    # of the values of a setting, at least one must make a difference, or be refused
    assert set(found) != {"same"}, f"{engine} drops engine.{key}"


def test_a_server_of_others_is_told_nothing_and_its_settings_stand_as_declared() -> None:
    conf = EngineConf(name="openai", dtype="bfloat16", max_running=64, tp=2)
    assert translate(conf, DECLARED) == Words()
    assert values_of(conf)["max_running"] == 64
