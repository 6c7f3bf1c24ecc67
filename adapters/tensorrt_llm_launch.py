"""How TensorRT-LLM is started: neutral settings to flags and to the LlmArgs file of trtllm-serve.

Up to 1.2 the file overrides the flags, later the flags override the file, and a section of the
file replaces the flags' section as a whole: so each setting is said in one of the two, and all of
`kv_cache_config` in the file. Sources: TensorRT-LLM 1.2 and 1.3 pre-releases, commands/serve.py
and llmapi/llm_args.py; not run here.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from adapters import launching
from adapters.arguments import flags, refuse
from adapters.settings import CannotError, Row, Table, Words, flag, never, option, translate
from adapters.tensorrt_llm_build import BUILT, OWN_KEYS, Engine, built_engine, is_built
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf, SpeculationConf

OPTIONS_FILE = "llm_args.yaml"  # JSON is YAML, and is written the same every time
_METHODS = {
    "ngram": "NGram",
    "draft": "Draft_Target",
    "eagle": "Eagle",
    "eagle3": "Eagle3",
    "mtp": "MTP",
}
_NEEDS_MODEL = {"draft", "eagle", "eagle3"}


def _cuda_graphs(value: bool) -> Words:
    return Words(options={"cuda_graph_config": {} if value else None})


def _speculation(value: SpeculationConf) -> Words:
    if value.method not in _METHODS:
        raise CannotError(f"drafts by a method that can be: {', '.join(sorted(_METHODS))}")
    if value.method in _NEEDS_MODEL and not value.model:
        raise CannotError("needs engine.speculation.model=FOLDER for a draft model")
    if value.tokens is None:
        raise CannotError("needs engine.speculation.tokens=N, it has no default")
    said: dict[str, Any] = {"decoding_type": _METHODS[value.method], "max_draft_len": value.tokens}
    if value.model:
        said["speculative_model_dir"] = value.model  # newer builds still take this name
    return Words(options={"speculative_config": said})


def _lora(value: Mapping[str, str]) -> Words:
    count = len(value)
    said = {"lora_dir": list(value.values()), "max_loras": count, "max_cpu_loras": count}
    return Words(options={"lora_config": said})


SETTINGS: Table = MappingProxyType(
    {
        "dtype": option("dtype"),
        "quantization": option("quant_config", "quant_algo"),
        "kv_dtype": option("kv_cache_config", "dtype"),
        "max_model_len": flag("--max_seq_len"),
        "max_running": flag("--max_batch_size"),
        "tokens_per_step": flag("--max_num_tokens"),
        "memory_fraction": Row(
            say=option("kv_cache_config", "free_gpu_memory_fraction").say,
            flags=("--kv_cache_free_gpu_memory_fraction", "--free_gpu_memory_fraction"),
        ),
        "kv_tokens": option("kv_cache_config", "max_tokens"),
        "prefix_cache": option("kv_cache_config", "enable_block_reuse"),
        "chunked_prefill": Row(
            say=option("enable_chunked_prefill").say, flags=("--enable_chunked_prefill",)
        ),
        "cuda_graphs": Row(say=_cuda_graphs),
        "speculation": Row(say=_speculation),
        "lora": Row(say=_lora),
        "tp": flag("--tp_size", "--tensor_parallel_size"),
        "pp": flag("--pp_size", "--pipeline_parallel_size"),
        "gpus": launching.GPUS,
        "threads": never("has no word for CPU threads: engine.env.OMP_NUM_THREADS is the closest"),
    }
)
_ENGINE_SETTINGS: Table = MappingProxyType(
    {
        **SETTINGS,
        **BUILT,
        "cuda_graphs": option("extended_runtime_perf_knob_config", "cuda_graph_mode"),
    }
)
_OWNED_KEYS = {  # of the file
    "dtype": "engine.dtype",
    "quant_config.quant_algo": "engine.quantization",
    "kv_cache_config.dtype": "engine.kv_dtype",
    "kv_cache_config.free_gpu_memory_fraction": "engine.memory_fraction",
    "kv_cache_config.max_tokens": "engine.kv_tokens",
    "kv_cache_config.enable_block_reuse": "engine.prefix_cache",
    "enable_chunked_prefill": "engine.chunked_prefill",
    "cuda_graph_config": "engine.cuda_graphs",
    "extended_runtime_perf_knob_config.cuda_graph_mode": "engine.cuda_graphs",
    "speculative_config.decoding_type": "engine.speculation.method",
    "speculative_config.max_draft_len": "engine.speculation.tokens",
    "speculative_config.speculative_model": "engine.speculation.model",
    "speculative_config.speculative_model_dir": "engine.speculation.model",
    "lora_config.lora_dir": "engine.lora",
    "max_seq_len": "engine.max_model_len",
    "max_batch_size": "engine.max_running",
    "max_num_tokens": "engine.tokens_per_step",
    "tensor_parallel_size": "engine.tp",
    "pipeline_parallel_size": "engine.pp",
    "enable_iter_perf_stats": "engine=tensorrt_llm as it is",
    "model": "model.path",
    "backend": "engine.args.flow",
}
OWNED = {
    "--host": "launch.port",
    "--port": "launch.port",
    "--backend": "engine.args.flow",
    "--tokenizer": "model.path",
    "--config": "engine.args with the keys of that file",
    "--extra_llm_api_options": "engine.args with the keys of that file",
}


def settings_of(conf: EngineConf) -> Table:
    """The table of the flow that `engine.args.flow` chooses."""
    return _ENGINE_SETTINGS if is_built(conf) else SETTINGS


def check_args(conf: EngineConf) -> None:
    """Raise ConfigError for a key of the file that a neutral setting says."""
    for path, value in _leaves(_file_args(conf)):
        if owner := _OWNED_KEYS.get(path):
            reason = f"is set by bakeoff; use {owner}"
            raise refuse(f"engine.args.{path}", value, reason)
    if conf.cuda_graphs is False and "cuda_graph_config" in conf.args:
        reason = "engine.cuda_graphs=false switches CUDA graphs off; give one of them"
        raise refuse("engine.args.cuda_graph_config", conf.args["cuda_graph_config"], reason)


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _file_args(conf: EngineConf) -> dict[str, Any]:
    """Raw arguments for the file; those that begin with a dash are flags."""
    return {k: v for k, v in conf.args.items() if not k.startswith("-") and k not in OWN_KEYS}


def lora_fields(conf: EngineConf, name: str | None) -> dict[str, Any]:
    """The field of a request that chooses a LoRA adapter: by name, number and folder."""
    names = tuple(conf.lora)
    if name is None:
        return {}
    if name not in names:
        reason = f"is not loaded; engine.lora has: {', '.join(names) or 'none'}"
        raise refuse("scenario.lora", name, reason)
    said = {"lora_name": name, "lora_int_id": names.index(name), "lora_path": conf.lora[name]}
    return {"lora_request": said}


def serve_spec(conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
    """The command line of trtllm-serve, its file, and for the engine flow the steps before.

    Iteration statistics are always on, for `/metrics` is empty without; request metrics cost
    host time and eat the same queue, so they are off.
    """
    words = translate(conf, settings_of(conf))
    served = launching.model_name(model, ctx)
    engine = Engine(folder=served)
    argv = [*launching.command(conf, ctx, launching.script(ctx, "trtllm-serve"))]
    if is_built(conf):
        engine = built_engine(conf, ctx)
        argv += [engine.folder, "--backend", "tensorrt", "--tokenizer", served]
    else:
        argv += [served, "--backend", "pytorch"]
    file = ctx.folder / OPTIONS_FILE
    argv += ["--host", ctx.host, "--port", str(ctx.port), "--extra_llm_api_options", str(file)]
    argv += flags({k: v for k, v in conf.args.items() if k.startswith("-")})
    always = Words(options={"enable_iter_perf_stats": True, "return_perf_metrics": False})
    said = (always + words + Words(options=_file_args(conf))).options
    text = msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"
    spec = {"files": {OPTIONS_FILE: text}, "prepare": engine.steps}
    return launching.serve_spec(conf, ctx, argv, words, **spec)
