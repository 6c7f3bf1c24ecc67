import argparse
import json
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.llamacpp import LlamaCppAdapter
from adapters.llamacpp_figures import kv_usage_ratio
from adapters.llamacpp_launch import EMBEDDED_FLAGS, SERVER
from harness.adapter import ServeContext
from harness.config import (
    EngineConf,
    ImageConf,
    LaunchMode,
    ModelConf,
    Route,
    SpeculationConf,
)
from harness.errors import ConfigError
from harness.types import Request

MODEL = ModelConf(name="smollm2", served_name="smol")
CTX = ServeContext(port=8190, python=Path("/env/bin/python"), model_path=Path("/m.gguf"), threads=3)
REQUEST = Request(index=0, prompt="hello", input_tokens=1, max_output_tokens=8, seed=7)


def engine(**settings: Any) -> EngineConf:
    return EngineConf(name="llamacpp", **settings)


def argv_of(conf: EngineConf, ctx: ServeContext = CTX) -> list[str]:
    return list(LlamaCppAdapter(conf, MODEL).serve(conf, MODEL, ctx).argv)


def server_options() -> argparse.ArgumentParser:
    options = runpy.run_path(str(SERVER), run_name="server")["options"]
    parser = options()
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def test_neutral_settings_become_the_servers_flags() -> None:
    conf = engine(max_running=2, max_model_len=512, tokens_per_step=256, threads=1)
    argv = argv_of(conf)
    assert argv[:2] == ["/env/bin/python", str(SERVER)]
    args = server_options().parse_args(argv[2:])
    assert (args.model, args.host, args.port) == ("/m.gguf", "127.0.0.1", 8190)
    assert (args.n_parallel, args.n_ctx, args.kv_unified) == (2, 1024, False)
    assert (args.n_batch, args.n_ubatch) == (256, 256)
    assert (args.threads, args.threads_batch, args.fit, args.ui) == (1, 1, "off", False)
    assert (args.cache_prompt, args.cache_ram_mib) == (False, 0)
    assert (args.endpoint_metrics, args.endpoint_slots, args.model_alias) == (True, True, "smol")


def test_what_is_not_set_is_said_all_the_same() -> None:
    args = server_options().parse_args(argv_of(engine(prefix_cache=True))[2:])
    assert (args.n_parallel, args.n_ctx, args.threads) == (4, 0, 3)
    assert (args.cache_prompt, args.cache_ram_mib, args.n_batch) == (None, None, None)


def test_a_binary_gets_the_same_flags() -> None:
    conf = engine(program="/opt/llama-server", speculation=SpeculationConf(method="ngram"))
    argv = argv_of(conf, ServeContext(port=1, model_path=Path("/m.gguf")))
    assert argv[0] == "/opt/llama-server"
    assert argv[-2:] == ["--spec-type", "ngram-simple"]
    wheel = argv_of(engine(), ServeContext(port=1, python=CTX.python, model_path=CTX.model_path))
    assert argv[1:-2] == wheel[2:]


def test_raw_arguments_are_passed_on() -> None:
    args = {"no-repack": True, "flash_attn": "on", "-sps": 0.5, "warmup": False, "jinja": None}
    argv = argv_of(engine(args=args))
    assert argv[-6:] == ["--no-repack", "--flash-attn", "on", "-sps", "0.5", "--no-warmup"]
    parsed = server_options().parse_args(argv[2:])
    assert (parsed.repack, parsed.flash_attn, parsed.warmup) == (False, "on", False)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"parallel": 8}, r"engine.args.parallel=8: is set by bakeoff; use engine.max_running"),
        ({"-c": 9}, r"engine.args.-c=9: is set by bakeoff; use engine.max_model_len"),
        ({"cache-ram": 9}, r"engine.args.cache-ram=9: is set by bakeoff; use engine.prefix_cache"),
        ({"lora": "x"}, r"engine.args.lora=x: is set by bakeoff; use engine.lora"),
    ],
)
def test_what_the_engine_cannot_take_is_refused(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LlamaCppAdapter(engine(args=args), MODEL)


def test_the_wheels_server_is_given_no_flag_that_it_has_not() -> None:
    conf = engine(args={"rope": "x"})
    with pytest.raises(ConfigError, match=r"engine.args.rope=x: is no flag of the wheel's server"):
        argv_of(conf)
    for other in (
        {"mode": LaunchMode.DOCKER, "python": None},
        {"mode": LaunchMode.PROCESS, "python": None},
    ):
        own = engine(args={"rope": "x"}, program="/opt/llama-server")
        argv = argv_of(own, replace(CTX, **other))
        assert argv[-2:] == ["--rope", "x"]


def test_the_image_is_given_the_flags_alone() -> None:
    conf = engine(image=ImageConf(reference="ghcr.io/ggml-org/llama.cpp:server-b11434"))
    spec = LlamaCppAdapter(conf, MODEL).serve(
        conf, MODEL, replace(CTX, mode=LaunchMode.DOCKER, python=None, host="0.0.0.0")
    )
    assert spec.argv == ("-m", *argv_of(conf)[3:5], "0.0.0.0", *argv_of(conf)[6:])
    assert spec.base_url == "http://127.0.0.1:8190"


def test_a_missing_environment_or_model_is_refused_with_what_to_do() -> None:
    conf = engine()
    adapter = LlamaCppAdapter(conf, MODEL)
    with pytest.raises(ConfigError, match="bakeoff engines install llamacpp"):
        adapter.serve(conf, MODEL, ServeContext(port=1, model_path=Path("/m.gguf")))
    with pytest.raises(ConfigError, match=r"model\.path: not given"):
        adapter.serve(conf, MODEL, ServeContext(port=1, python=Path("/env/bin/python")))


def test_the_flags_that_are_let_through_are_the_servers() -> None:
    known = {option for action in server_options()._actions for option in action.option_strings}
    assert known >= EMBEDDED_FLAGS > {"--flash-attn", "-sps", "--no-repack"}


def test_the_server_script_sets_the_librarys_parameters() -> None:
    names = runpy.run_path(str(SERVER), run_name="server")
    line = ["-m", "/m.gguf", "-np", "2", "-c", "1024", "-t", "1", "-a", "smol", "--no-cache-prompt"]
    line += ["-fit", "off", "-fa", "on", "-ctk", "q8_0", "--no-repack", "--metrics", "--no-ui"]
    line += ["--spec-type", "ngram-map-k", "--lora", "/a.gguf", "--lora", "/b.gguf"]
    library = SimpleNamespace(
        CommonParams=lambda: SimpleNamespace(
            model=SimpleNamespace(),
            cpuparams=SimpleNamespace(),
            cpuparams_batch=SimpleNamespace(),
            speculative=SimpleNamespace(),
        ),
        llama_flash_attn_type=SimpleNamespace(LLAMA_FLASH_ATTN_TYPE_ENABLED="enabled"),
        ggml_type=SimpleNamespace(GGML_TYPE_Q8_0="q8"),
        common_speculative_type=SimpleNamespace(COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K="map"),
        CommonAdapterLoraInfo=lambda path, scale: (path, scale),
    )
    params = names["parameters"](names["options"]().parse_args(line), library)
    assert (params.model.path, params.hostnames, params.port) == ("/m.gguf", ["127.0.0.1"], 8080)
    assert (params.n_parallel, params.n_ctx, params.kv_unified) == (2, 1024, False)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (1, 1)
    assert (params.model_alias, params.cache_prompt, params.fit_params) == ({"smol"}, False, False)
    assert (params.flash_attn_type, params.cache_type_k) == ("enabled", "q8")
    assert (params.no_extra_bufts, params.endpoint_metrics, params.ui) == (True, True, False)
    assert params.speculative.types == ["map"]
    assert params.lora_adapters == [("/a.gguf", 1.0), ("/b.gguf", 1.0)]
    assert not hasattr(params, "n_batch")


def test_a_completion_request() -> None:
    call = LlamaCppAdapter(engine(), MODEL).encode(REQUEST)
    assert (call.method, call.path) == ("POST", "/v1/completions")
    assert json.loads(call.body) == {
        "model": "smol",
        "prompt": "hello",
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "ignore_eos": True,
        "cache_prompt": False,
    }


def test_a_sampled_chat_request_names_all_filters() -> None:
    adapter = LlamaCppAdapter(engine(route=Route.CHAT, prefix_cache=True), ModelConf(name="m"))
    request = Request(
        index=0, prompt="hi", input_tokens=1, max_output_tokens=8, seed=7, temperature=0.5
    )
    call = adapter.encode(request)
    body = json.loads(call.body)
    assert call.path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    sampling = {"temperature": 0.5, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": 7}
    assert body.items() >= sampling.items()
    assert (body["model"], body["cache_prompt"]) == ("m", True)


def test_kv_usage_counts_only_slots_at_work() -> None:
    busy = {"n_ctx": 512, "is_processing": True, "n_prompt_tokens": 128}
    idle = {"n_ctx": 512, "is_processing": False, "n_prompt_tokens": 300}
    fresh = {"n_ctx": 512, "is_processing": False}
    assert kv_usage_ratio(json.dumps([busy, idle]).encode()) == 128 / 1024
    assert kv_usage_ratio(json.dumps([busy, fresh]).encode()) == 128 / 1024
    assert kv_usage_ratio(json.dumps([fresh, fresh]).encode()) == 0
    assert kv_usage_ratio(json.dumps([{**fresh, "is_processing": True}]).encode()) is None
    assert kv_usage_ratio(b"[]") is None
    assert kv_usage_ratio(b'[{"is_processing": false}]') is None
