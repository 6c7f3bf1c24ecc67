"""How `transformers serve` is started: neutral settings to flags, and what is refused.

One server with two modes: continuous batching, and one request at a time. Which of them a key has
a word for differs. Sources: transformers 5.19 and 5.24, cli/serve.py and
generation/continuous_batching.
"""

from collections.abc import Mapping
from types import MappingProxyType

from adapters import launching
from adapters.arguments import flag as flag_of
from adapters.arguments import flags, refuse
from adapters.settings import (
    NOTHING,
    CannotError,
    Row,
    Table,
    Words,
    flag,
    never,
    one_of,
    only,
    switch,
    translate,
)
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, LaunchMode, ModelConf
from harness.errors import ConfigError

PAGE_TOKENS = 256  # the library's own page; a block of the cache holds so many tokens
_DTYPES = ("auto", "bfloat16", "float16", "float32")
_QUANTIZATIONS = ("bnb-4bit", "bnb-8bit")
_ONE = "runs one request after another (engine.max_running=1)"
_BATCH_ONLY = f"{_ONE} and has this only in continuous batching; leave one of them out"


def _max_running(value: int) -> Words:
    if value == 1:
        return NOTHING
    raise CannotError(
        "has no flag for a number: leave it out for continuous batching, in which the library "
        "lets in what fits (up to 1024), or give 1 for one request at a time"
    )


def _kv_tokens(value: int) -> Words:
    return Words(argv=("--cb-num-blocks", str(-(-value // PAGE_TOKENS))))


_MODES = ("--continuous-batching", "--no-continuous-batching")
_EITHER: Mapping[str, Row] = {
    "dtype": one_of(dict(zip(_DTYPES, _DTYPES, strict=True)), flag("--dtype"), "has dtypes that"),
    "quantization": one_of(
        dict(zip(_QUANTIZATIONS, _QUANTIZATIONS, strict=True)),
        flag("--quantization"),
        "quantises, as it loads, by a method that",
    ),
    "kv_dtype": never("keeps its KV cache in the model's own dtype: engine.dtype"),
    "max_model_len": never("has no flag for a limit, and checks no length against the model's own"),
    "max_running": Row(say=_max_running, flags=_MODES),
    "speculation": never("drafts nothing in its server"),
    "lora": never("serves no LoRA adapters"),
    "tp": only(1, "has no tensor parallelism in its server"),
    "pp": only(1, "has no pipeline: --device auto spreads layers over the GPUs, one at work"),
    "gpus": launching.GPUS,
    "threads": Row(say=lambda _value: NOTHING),  # always said, given or not
}
CONTINUOUS: Table = MappingProxyType(
    {
        **_EITHER,
        "tokens_per_step": flag("--cb-max-batch-tokens"),
        "memory_fraction": flag("--cb-max-memory-percent"),
        "kv_tokens": Row(say=_kv_tokens, flags=("--cb-num-blocks",)),
        "prefix_cache": only(
            allowed=True,
            reason="shares the KV blocks of equal beginnings in continuous batching and has no "
            "switch for it: engine.prefix_cache=true, with prompts that are unique, or "
            "engine.max_running=1",
        ),
        "chunked_prefill": only(
            allowed=True, reason="always cuts prompts to engine.tokens_per_step in this mode"
        ),
        "cuda_graphs": switch("--cb-use-cuda-graph", "--no-cb-use-cuda-graph"),
    }
)
ONE_AT_A_TIME: Table = MappingProxyType(
    {
        **_EITHER,
        "tokens_per_step": never(_BATCH_ONLY),
        "memory_fraction": never(_BATCH_ONLY),
        "kv_tokens": never(_BATCH_ONLY),
        "prefix_cache": only(
            allowed=False, reason=f"{_ONE} and keeps nothing between them: prefix_cache=false"
        ),
        "chunked_prefill": only(allowed=False, reason=f"{_ONE}, each prompt whole"),
        "cuda_graphs": only(
            allowed=False, reason=f"{_ONE}; it captures graphs only with engine.args.compile=true"
        ),
    }
)
OWNED = {
    **dict.fromkeys(("--host", "--port"), "launch.port"),
    **dict.fromkeys(("--force-model", "--non-blocking"), "engine=transformers as it is"),
}
_ALWAYS = {"HF_HUB_DISABLE_UPDATE_CHECK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def is_continuous(conf: EngineConf) -> bool:
    """Whether the server batches continuously: always, unless `max_running` is 1."""
    return conf.max_running != 1


def table(conf: EngineConf) -> Table:
    """The settings of the mode that is asked for."""
    return CONTINUOUS if is_continuous(conf) else ONE_AT_A_TIME


def check_together(conf: EngineConf) -> None:
    """Raise ConfigError for raw flags that the mode ignores, or that change what a key means."""
    for key, value in conf.args.items():
        name = flag_of(key)
        if name.startswith(("--cb-", "--no-cb-")) and not is_continuous(conf):
            raise refuse(f"engine.args.{key}", value, f"engine=transformers {_BATCH_ONLY}")
        if name == "--cb-block-size" and conf.kv_tokens is not None:
            reason = f"engine.kv_tokens counts blocks of {PAGE_TOKENS} tokens; give one of them"
            raise refuse(f"engine.args.{key}", value, reason)


def serve_spec(conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
    """The command line of `transformers serve`, its mode said, with one model for all requests."""
    if model.served_name:
        reason = "engine=transformers serves a model by the name it was started with; leave it out"
        raise refuse("model.served_name", model.served_name, reason)
    if ctx.mode is LaunchMode.DOCKER and not (conf.image and conf.image.reference):
        raise ConfigError(
            "launch.mode=docker: engine=transformers has no image of its makers; give one that "
            "has transformers[serving] in it: engine.image.reference=NAME:TAG "
            "engine.image.command=[transformers], or use launch=process"
        )
    program = launching.command(conf, ctx, launching.script(ctx, "transformers"))
    argv = [*program, "serve", launching.model_name(model, ctx), "--host", ctx.host]
    argv += ["--port", str(ctx.port), _MODES[0] if is_continuous(conf) else _MODES[1]]
    env = {**_ALWAYS, "OMP_NUM_THREADS": str(conf.threads or ctx.threads)}
    if ctx.model_path is not None:
        env["HF_HUB_OFFLINE"] = "1"  # all of it is on disk: nothing is to be asked for
    words = Words(env=env) + translate(conf, table(conf)) + Words(argv=tuple(flags(conf.args)))
    return launching.serve_spec(conf, ctx, argv, words)
