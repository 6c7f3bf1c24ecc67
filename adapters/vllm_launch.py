"""How vLLM is started: neutral settings to flags and variables, and what is refused.

Source: vLLM 0.33.0, engine/arg_utils.py and envs.py as read; the CPU build 0.32.0 was started so.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from adapters import launching
from adapters.arguments import flags
from adapters.settings import (
    CannotError,
    Row,
    Table,
    Words,
    check_raw,
    flag,
    never,
    only,
    switch,
    translate,
    variable,
)
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, LaunchMode, ModelConf, SpeculationConf

MODULE = "vllm.entrypoints.openai.api_server"  # the `vllm` command fails in the CPU build
BLOCK_TOKENS = 16
CPU_BLOCK_TOKENS = 128
CPU_KV_GIB = 1
_METHODS = {"draft": "draft_model"}
_ONE_PROCESS = "is started as one process on a CPU: leave it at 1"


def _kv_tokens(block_tokens: int) -> Row:
    def say(value: int) -> Words:
        blocks, rest = divmod(value, block_tokens)
        if rest:
            raise CannotError(f"has blocks of {block_tokens} tokens: give a multiple of that")
        size = ("--block-size", str(block_tokens))
        return Words(argv=(*size, "--num-gpu-blocks-override", str(blocks)))

    return Row(say=say, flags=("--num-gpu-blocks-override",))


def _speculation(value: SpeculationConf) -> Words:
    if value.method == "draft" and not value.model:
        raise CannotError("needs engine.speculation.model=FOLDER for a draft model")
    if value.method in {"draft", "ngram"} and value.tokens is None:
        raise CannotError("needs engine.speculation.tokens=N: how many it drafts at a time")
    said: dict[str, Any] = {"method": _METHODS.get(value.method, value.method)}
    if value.model:
        said["model"] = value.model
    if value.tokens is not None:
        said["num_speculative_tokens"] = value.tokens
    return Words(argv=("--speculative-config", msgspec.json.encode(said).decode()))


def _lora(value: Mapping[str, str]) -> Words:
    modules = (f"{name}={path}" for name, path in value.items())
    return Words(argv=("--enable-lora", "--max-loras", str(len(value)), "--lora-modules", *modules))


def _cpu_graphs(value: bool) -> Words:
    if value:
        raise CannotError(
            "has no CUDA graphs on a CPU: false says --enforce-eager, null lets it compile"
        )
    return Words(argv=("--enforce-eager",))


SETTINGS: Table = MappingProxyType(
    {
        "dtype": flag("--dtype"),
        "quantization": flag("--quantization", "-q"),
        "kv_dtype": flag("--kv-cache-dtype"),
        "max_model_len": flag("--max-model-len"),
        "max_running": flag("--max-num-seqs"),
        "tokens_per_step": flag("--max-num-batched-tokens"),
        "memory_fraction": flag("--gpu-memory-utilization"),
        "kv_tokens": _kv_tokens(BLOCK_TOKENS),
        "prefix_cache": switch("--enable-prefix-caching", "--no-enable-prefix-caching"),
        "chunked_prefill": switch("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
        "cuda_graphs": switch("", "--enforce-eager"),
        "speculation": Row(
            say=_speculation,
            flags=(
                *("--speculative-config", "-sc"),
                *("--spec-method", "--spec-model", "--spec-tokens"),
            ),
        ),
        "lora": Row(say=_lora, flags=("--enable-lora", "--lora-modules", "--max-loras")),
        "tp": flag("--tensor-parallel-size", "-tp"),
        "pp": flag("--pipeline-parallel-size", "-pp"),
        "gpus": launching.GPUS,
        "threads": variable("OMP_NUM_THREADS"),
    }
)
CPU_SETTINGS: Table = MappingProxyType(
    {
        **SETTINGS,
        "kv_tokens": _kv_tokens(CPU_BLOCK_TOKENS),
        "cuda_graphs": Row(say=_cpu_graphs, flags=("--enforce-eager",)),
        "tp": only(1, _ONE_PROCESS),
        "pp": only(1, _ONE_PROCESS),
        "gpus": never("runs on the CPU: leave engine.gpus out, or use engine=vllm"),
    }
)
_AS_IT_IS = "the engine as it is"
OWNED = {
    "--model": "model.path",
    "--served-model-name": "model.served_name",
    **dict.fromkeys(("--host", "--port"), "launch.port"),
    # sampling is said in every request, and metrics are read
    **dict.fromkeys(("--generation-config", "--override-generation-config"), _AS_IT_IS),
    **dict.fromkeys(("--disable-log-stats", "--enable-prompt-tokens-details"), _AS_IT_IS),
    "--disable-uvicorn-access-log": _AS_IT_IS,
}
_ALWAYS = (
    *("--generation-config", "vllm"),  # no sampling defaults out of the model's folder
    "--enable-prompt-tokens-details",  # usage tells the tokens that came from the cache
    "--disable-uvicorn-access-log",  # a line a request would push a failure's reason out of sight
)


def check_together(conf: EngineConf, table: Table) -> None:
    """Raise ConfigError for a raw block size beside `kv_tokens`, which counts in blocks."""
    if conf.kv_tokens is not None:
        check_raw(conf, table, {"--block-size": "engine.kv_tokens"})


def serve_spec(conf: EngineConf, model: ModelConf, ctx: ServeContext, table: Table) -> ServeSpec:
    """The command line of vLLM's server module, of a `vllm` command, or of the image."""
    argv = [*launching.command(conf, ctx, "-m", MODULE)]
    name = launching.model_name(model, ctx)
    if ctx.mode is LaunchMode.DOCKER:
        argv += [name]  # the image's entry point is `vllm serve`, which wants it in its place
    else:
        argv += ["serve", name] if conf.program else ["--model", name]
    argv += ["--host", ctx.host, "--port", str(ctx.port)]
    argv += ["--served-model-name", launching.served_name(model), *_ALWAYS]
    words = _said(conf, ctx, table) + translate(conf, table)
    return launching.serve_spec(conf, ctx, argv, words + Words(argv=tuple(flags(conf.args))))


def _said(conf: EngineConf, ctx: ServeContext, table: Table) -> Words:
    """What has to be said although no setting says it; settings and `engine.env` come after."""
    env = {"VLLM_NO_USAGE_STATS": "1"}
    others = [path for path in (*conf.lora.values(), conf.speculation.model) if path]
    if ctx.model_path is not None and all(Path(path).exists() for path in others):
        env["HF_HUB_OFFLINE"] = "1"
    if table is not CPU_SETTINGS:
        return Words(env=env)
    env |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(ctx.threads)}
    if conf.memory_fraction is None:  # it goes before the fraction
        env["VLLM_CPU_KVCACHE_SPACE"] = str(CPU_KV_GIB)
    return Words(argv=() if conf.dtype else ("--dtype", "float32"), env=env)
