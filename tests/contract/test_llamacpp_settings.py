"""Every neutral setting in llama.cpp's words, or refused with its reason."""

from pathlib import Path
from typing import Any

import pytest

from adapters.llamacpp import LlamaCppAdapter
from adapters.llamacpp_launch import SETTINGS
from harness import config
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf, SpeculationConf
from harness.errors import ConfigError

MODEL = ModelConf(name="smol")
CTX = ServeContext(port=1, python=Path("/env/bin/python"), model_path=Path("/m.gguf"), threads=3)
PLAIN = [
    *("-m", "/m.gguf", "--host", "127.0.0.1", "--port", "1", "-a", "smol", "-np", "4", "-c", "0"),
    *("-no-kvu", "-t", "3", "-tb", "3", "-fit", "off", "--no-ui", "--metrics", "--slots"),
]
CACHE_OFF = ["--no-cache-prompt", "-cram", "0"]


def served(**settings: Any) -> ServeSpec:
    conf = EngineConf(name="llamacpp", program="/opt/llama-server", **settings)
    return LlamaCppAdapter(conf, MODEL).serve(conf, MODEL, CTX)


def said(**settings: Any) -> list[str]:
    """The flags beside those that are always said."""
    argv = list(served(**settings).argv)
    assert argv[0] == "/opt/llama-server"
    assert argv[1 : len(PLAIN) + 1] == PLAIN
    return argv[len(PLAIN) + 1 :]


def draft(**fields: Any) -> SpeculationConf:
    return SpeculationConf(**fields)


def test_every_neutral_setting_has_its_row() -> None:
    assert set(SETTINGS) == set(config.SETTINGS)


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, []),
        ({"kv_dtype": "q8_0"}, ["-ctk", "q8_0", "-ctv", "q8_0"]),
        ({"tokens_per_step": 256}, ["-b", "256", "-ub", "256"]),
        ({"chunked_prefill": True}, []),
        ({"cuda_graphs": True}, []),
        ({"tp": 2}, ["-sm", "row", "-ts", "1,1"]),
        ({"pp": 3}, ["-sm", "layer", "-ts", "1,1,1"]),
        ({"lora": {"a": "/a.gguf", "b": "/b.gguf"}}, ["--lora", "/a.gguf", "--lora", "/b.gguf"]),
        ({"speculation": draft(method="ngram")}, ["--spec-type", "ngram-simple"]),
        (
            {"speculation": draft(method="draft", model="/d.gguf", tokens=5)},
            ["--spec-type", "draft-simple", "-md", "/d.gguf", "--spec-draft-n-max", "5"],
        ),
    ],
)
def test_a_setting_is_said_in_the_servers_flags(settings: Any, flags: list[str]) -> None:
    argv = said(**settings)
    assert sorted(argv) == sorted(CACHE_OFF + flags)
    if flags:
        at = argv.index(flags[0])
        assert argv[at : at + len(flags)] == flags
    with_cache = said(**settings, prefix_cache=True)
    assert with_cache == flags


def test_the_context_is_slots_times_the_longest_sequence_or_the_kv_tokens() -> None:
    def context(**settings: Any) -> list[str]:
        argv = served(**settings).argv
        return [argv[argv.index(flag) + 1] for flag in ("-np", "-c")]

    assert context(max_model_len=512) == ["4", "2048"]
    assert context(max_model_len=512, max_running=8) == ["8", "4096"]
    assert context(kv_tokens=3000, max_running=2) == ["2", "3000"]
    assert context(kv_tokens=2048, max_model_len=512) == ["4", "2048"]
    with pytest.raises(
        ConfigError, match=r"engine.kv_tokens=2000: engine=llamacpp gives each of 4"
    ):
        context(kv_tokens=2000, max_model_len=512)


def test_what_has_no_flag_is_a_variable_of_the_environment() -> None:
    assert served().env == {}
    assert served(cuda_graphs=False).env == {"GGML_CUDA_DISABLE_GRAPHS": "1"}
    assert served(gpus=[1, 3], tp=2).env == {"CUDA_VISIBLE_DEVICES": "1,3"}
    assert served(threads=5).argv[14:18] == ("-t", "5", "-tb", "5")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "bfloat16"}, "engine.dtype=bfloat16: engine=llamacpp takes it from the model"),
        ({"quantization": "awq"}, "engine.quantization=awq: engine=llamacpp takes it from the"),
        ({"memory_fraction": 0.9}, r"engine.memory_fraction=0.9: .* tokens: engine.kv_tokens"),
        ({"chunked_prefill": False}, "engine.chunked_prefill=False: .* always cuts prompts"),
        ({"tp": 2, "pp": 2}, "engine.pp=2: .* by layer or by row, not both"),
        ({"speculation": draft(method="medusa")}, "engine.speculation=medusa: .* draft-eagle3"),
        ({"speculation": draft(method="draft")}, "needs engine.speculation.model=FILE"),
        ({"args": {"-sm": "tensor"}}, "engine.args.-sm=tensor: is set by bakeoff; use engine.tp"),
        ({"args": {"ctk": "q8_0"}}, None),  # `--ctk` is no flag: the server's own affair
        ({"args": {"-ctk": "q8_0"}}, "use engine.kv_dtype"),
        ({"args": {"kv-unified": True}}, "use engine.max_model_len"),
    ],
)
def test_what_the_engine_cannot_take_is_refused(settings: Any, message: str | None) -> None:
    if message is None:
        assert said(**settings)
        return
    with pytest.raises(ConfigError, match=message):
        said(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tp": 2}, r"engine.tp=2: engine=llamacpp: the wheel's server cannot: take launch=docker"),
        ({"pp": 2}, r"engine.pp=2: .*engine.program=PATH"),
        ({"speculation": draft(method="draft", model="/d")}, r"engine.speculation.model=/d: "),
        ({"speculation": draft(method="ngram", tokens=4)}, r"engine.speculation.tokens=4: "),
    ],
)
def test_what_only_a_llama_server_has_is_refused_for_the_wheel(settings: Any, message: str) -> None:
    conf = EngineConf(name="llamacpp", **settings)
    with pytest.raises(ConfigError, match=message):
        LlamaCppAdapter(conf, MODEL).serve(conf, MODEL, CTX)


def test_files_of_adapters_and_drafts_are_mounted(tmp_path: Path) -> None:
    lora, model = tmp_path / "a.gguf", tmp_path / "d.gguf"
    for file in (lora, model):
        file.write_bytes(b"")
    speculation = draft(method="draft", model=str(model))
    spec = served(lora={"a": str(lora), "hub": "org/name"}, speculation=speculation)
    assert spec.mounts == (lora, model)
