"""How llama.cpp's server is started: neutral settings to flags, and what is refused.

Nothing is left to the engine's guesses: slots, context, fitting, caches and threads are all said.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adapters import launching
from adapters.arguments import flags, refuse
from adapters.settings import (
    CannotError,
    Row,
    Table,
    Words,
    check_raw,
    flag,
    never,
    one_of,
    only,
    translate,
)
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, LaunchMode, ModelConf, SpeculationConf
from harness.errors import ConfigError

SERVER = Path(__file__).parent / "servers" / "xllamacpp_server.py"
DEFAULT_MAX_RUNNING = 4  # llama-server's own choice for `-np auto`
_GGUF = "takes it from the model file: convert or quantise that, and give it as model.path"
_METHODS = {
    name: name
    for name in ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
} | {"ngram": "ngram-simple", "draft": "draft-simple", "draft-eagle3": "draft-eagle3"}


def _kv_dtype(value: str) -> Words:
    return Words(argv=("-ctk", value, "-ctv", value))


def _prefix_cache(value: bool) -> Words:
    return Words(argv=() if value else ("--no-cache-prompt", "-cram", "0"))


def _tokens_per_step(value: int) -> Words:
    return Words(argv=("-b", str(value), "-ub", str(value)))


def _cuda_graphs(value: bool) -> Words:
    return Words(env={} if value else {"GGML_CUDA_DISABLE_GRAPHS": "1"})


def _tp(value: int) -> Words:
    return Words(argv=("-sm", "row", "-ts", ",".join(["1"] * value)) if value > 1 else ())


def _pp(value: int) -> Words:
    return Words(argv=("-sm", "layer", "-ts", ",".join(["1"] * value)) if value > 1 else ())


def _speculation(value: SpeculationConf) -> Words:
    words = one_of(_METHODS, flag("--spec-type"), "drafts by a method that").say(value.method)
    if value.method.startswith("draft") and not value.model:
        raise CannotError("needs engine.speculation.model=FILE for a draft model")
    if value.model:
        words += Words(argv=("-md", value.model))
    if value.tokens is not None:
        words += Words(argv=("--spec-draft-n-max", str(value.tokens)))
    return words


def _lora(value: Mapping[str, str]) -> Words:
    return Words(argv=tuple(part for file in value.values() for part in ("--lora", file)))


_SAID_TOGETHER = Row(say=lambda _value: Words())  # slots and context depend on each other
SETTINGS: Table = MappingProxyType(
    {
        "dtype": never(_GGUF),
        "quantization": never(_GGUF),
        "kv_dtype": Row(say=_kv_dtype, flags=("-ctk", "--cache-type-k", "-ctv", "--cache-type-v")),
        "max_model_len": Row(say=_SAID_TOGETHER.say, flags=("-c", "--ctx-size", "-fit", "--fit")),
        "max_running": Row(say=_SAID_TOGETHER.say, flags=("-np", "--parallel")),
        "tokens_per_step": Row(
            say=_tokens_per_step, flags=("-b", "--batch-size", "-ub", "--ubatch-size")
        ),
        "memory_fraction": never("sizes its KV cache in tokens: engine.kv_tokens"),
        "kv_tokens": _SAID_TOGETHER,
        "prefix_cache": Row(say=_prefix_cache, flags=("--cache-prompt", "--no-cache-prompt")),
        "chunked_prefill": only(allowed=True, reason="always cuts prompts to tokens_per_step"),
        "cuda_graphs": Row(say=_cuda_graphs),
        "speculation": Row(
            say=_speculation,
            flags=("--spec-type", "-md", "--spec-draft-model", "--spec-draft-n-max"),
        ),
        "lora": Row(say=_lora, flags=("--lora",)),
        "tp": Row(say=_tp, flags=("-sm", "--split-mode", "-ts", "--tensor-split")),
        "pp": Row(say=_pp),
        "gpus": launching.GPUS,
        "threads": Row(say=_SAID_TOGETHER.say, flags=("-t", "--threads", "-tb", "--threads-batch")),
    }
)
OWNED = {
    **dict.fromkeys(("-m", "--model"), "model.path"),
    **dict.fromkeys(("--host", "--port"), "launch.port"),
    **dict.fromkeys(("-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"), "engine.max_model_len"),
    **dict.fromkeys(("-a", "--alias"), "model.served_name"),
    **dict.fromkeys(("--metrics", "--slots", "--ui", "--no-ui"), "engine=llamacpp as it is"),
}
_CACHES = dict.fromkeys(("-cram", "--cache-ram", "--cache-reuse"), "engine.prefix_cache")
# what the wheel's server takes beside these; a binary judges its own flags
_SHORT_FLAGS = ("-fa", "-ngl", "-cram", "-sps", "-lv")
_VALUE_FLAGS = (
    "--flash-attn",
    "--n-gpu-layers",
    "--cache-ram",
    "--slot-prompt-similarity",
    "--verbosity",
    "--cache-reuse",
    "--threads-http",
    "--timeout",
    "--sse-ping-interval",
)
_SWITCHES = ("repack", "cont-batching", "context-shift", "swa-full", "warmup", "jinja")
EMBEDDED_FLAGS = frozenset(
    (*_SHORT_FLAGS, *_VALUE_FLAGS, *(f"--{no}{s}" for s in _SWITCHES for no in ("", "no-")))
)


def check_together(conf: EngineConf) -> None:
    """Raise ConfigError for settings that llama.cpp has not together."""
    if conf.tp > 1 and conf.pp > 1:
        raise refuse("engine.pp", conf.pp, "engine=llamacpp splits by layer or by row, not both")
    if not conf.prefix_cache:
        check_raw(conf, SETTINGS, _CACHES)


def check_wheel(conf: EngineConf) -> None:
    """Raise ConfigError for what the wheel's server has not; a llama-server judges for itself."""
    other = "the wheel's server cannot: take launch=docker or a llama-server, engine.program=PATH"
    for key in ("tp", "pp"):
        if getattr(conf, key) > 1:
            raise refuse(f"engine.{key}", getattr(conf, key), f"engine=llamacpp: {other}")
    draft = conf.speculation
    for key, value in (("model", draft.model), ("tokens", draft.tokens)):
        if value:
            raise refuse(f"engine.speculation.{key}", value, f"engine=llamacpp: {other}")
    _refuse_unknown(conf.args)


def _refuse_unknown(raw: Mapping[str, Any]) -> None:
    for key, value in raw.items():
        if any(name.startswith("-") and name not in EMBEDDED_FLAGS for name in flags({key: True})):
            known = " ".join(sorted(name for name in EMBEDDED_FLAGS if name.startswith("--")))
            reason = f"is no flag of the wheel's server; it takes {known}; a llama-server of "
            raise refuse(f"engine.args.{key}", value, reason + "your own is engine.program")


def serve_spec(conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
    """The command line of the wheel's server, of a llama-server, or of the image.

    The context is divided: `max_running` slots of `max_model_len` tokens each, not one pool.
    """
    if ctx.model_path is None:
        raise ConfigError("model.path: not given; llamacpp needs a GGUF file, model.path=FILE")
    if ctx.mode is LaunchMode.PROCESS and not conf.program:
        check_wheel(conf)
    running = conf.max_running or DEFAULT_MAX_RUNNING
    threads = str(conf.threads or ctx.threads)
    argv = [*launching.command(conf, ctx, str(SERVER)), "-m", str(ctx.model_path)]
    argv += ["--host", ctx.host, "--port", str(ctx.port), "-a", launching.served_name(model)]
    argv += ["-np", str(running), "-c", str(_context(conf, running)), "-no-kvu"]
    argv += ["-t", threads, "-tb", threads, "-fit", "off", "--no-ui", "--metrics", "--slots"]
    words = translate(conf, SETTINGS) + Words(argv=tuple(flags(conf.args)))
    return launching.serve_spec(conf, ctx, argv, words)


def _context(conf: EngineConf, running: int) -> int:
    """Tokens of all slots; 0: the model's own length."""
    if conf.kv_tokens is None:
        return running * (conf.max_model_len or 0)
    per_slot = conf.kv_tokens // running
    if conf.max_model_len is not None and conf.max_model_len != per_slot:
        reason = (
            f"engine=llamacpp gives each of {running} slots an equal share, {per_slot} tokens, but "
            f"engine.max_model_len={conf.max_model_len}; give one of them"
        )
        raise refuse("engine.kv_tokens", conf.kv_tokens, reason)
    return conf.kv_tokens
