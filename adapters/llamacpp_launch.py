"""How llama.cpp's server is started: neutral settings to flags, and what is refused.

Nothing is left to the engine's guesses: slots, context, fitting, caches and threads are all said.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adapters.arguments import flags, refuse, refuse_owned
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf
from harness.errors import ConfigError

SERVER = Path(__file__).parent / "servers" / "xllamacpp_server.py"
DEFAULT_MAX_RUNNING = 4  # llama-server's own choice for `-np auto`
_OWNED = {
    **dict.fromkeys(("-m", "--model"), "model.path"),
    **dict.fromkeys(("--host", "--port"), "launch.port"),
    **dict.fromkeys(("-np", "--parallel"), "engine.max_running"),
    **dict.fromkeys(("-c", "--ctx-size"), "engine.max_model_len"),
    **dict.fromkeys(("-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"), "engine.max_model_len"),
    **dict.fromkeys(("-b", "--batch-size", "-ub", "--ubatch-size"), "engine.tokens_per_step"),
    **dict.fromkeys(("-t", "--threads", "-tb", "--threads-batch"), "engine.threads"),
    **dict.fromkeys(("--cache-prompt", "--no-cache-prompt"), "engine.prefix_cache"),
    **dict.fromkeys(("-a", "--alias"), "model.served_name"),
    **dict.fromkeys(("-fit", "--fit"), "engine.max_model_len"),
    **dict.fromkeys(("--metrics", "--slots", "--ui", "--no-ui"), "engine=llamacpp as it is"),
}
_CACHES = dict.fromkeys(("-cram", "--cache-ram", "--cache-reuse"), "engine.prefix_cache")
# what the wheel's server takes beside these; a binary judges its own flags
_SHORT_FLAGS = ("-fa", "-ctk", "-ctv", "-ngl", "-cram", "-sps", "-lv")
_VALUE_FLAGS = (
    "--flash-attn",
    "--cache-type-k",
    "--cache-type-v",
    "--n-gpu-layers",
    "--cache-ram",
    "--slot-prompt-similarity",
    "--verbosity",
    "--cache-reuse",
    "--threads-http",
    "--timeout",
    "--sse-ping-interval",
    "--spec-type",
)
_SWITCHES = ("repack", "cont-batching", "context-shift", "swa-full", "warmup", "jinja")
EMBEDDED_FLAGS = frozenset(
    (*_SHORT_FLAGS, *_VALUE_FLAGS, *(f"--{no}{s}" for s in _SWITCHES for no in ("", "no-")))
)


def _raw_args(conf: EngineConf) -> dict[str, Any]:
    return {key: value for key, value in conf.args.items() if key not in {"binary", "lora"}}


def lora_files(conf: EngineConf) -> Mapping[str, str]:
    """The LoRA files of `engine.args.lora` by name, in the order in which they are loaded.

    A mapping of names to files, or a list of files, each named by its file name without ending.
    """
    given = conf.args.get("lora")
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): str(file) for name, file in given.items()}
    if isinstance(given, list):
        return {Path(str(file)).stem: str(file) for file in given}
    raise refuse("engine.args.lora", given, "must be {NAME: FILE, ...} or [FILE, ...]")


def check_args(conf: EngineConf) -> None:
    """Raise ConfigError for a raw argument that is set elsewhere, or unknown to the wheel."""
    raw = _raw_args(conf)
    lora_files(conf)
    refuse_owned(raw, _OWNED if conf.prefix_cache else {**_OWNED, **_CACHES})
    if not conf.args.get("binary"):
        _refuse_unknown(raw)


def _refuse_unknown(raw: Mapping[str, Any]) -> None:
    for key, value in raw.items():
        if any(name.startswith("-") and name not in EMBEDDED_FLAGS for name in flags({key: True})):
            known = " ".join(sorted(name for name in EMBEDDED_FLAGS if name.startswith("--")))
            reason = f"is no flag of the wheel's server; it takes {known}; a llama-server of "
            raise refuse(f"engine.args.{key}", value, reason + "your own is engine.args.binary")


def serve_spec(conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
    """The command line of the wheel's server or of the binary.

    The context is divided: `max_running` slots of `max_model_len` tokens each, not one pool.
    """
    if ctx.model_path is None:
        raise ConfigError("model.path: not given; llamacpp needs a GGUF file, model.path=FILE")
    running = conf.max_running or DEFAULT_MAX_RUNNING
    threads = str(conf.threads or ctx.threads)
    argv = [*_command(conf, ctx), "-m", str(ctx.model_path), "--host", ctx.host]
    argv += ["--port", str(ctx.port), "-a", model.served_name or model.name]
    argv += ["-np", str(running), "-c", str(running * (conf.max_model_len or 0)), "-no-kvu"]
    argv += ["-t", threads, "-tb", threads, "-fit", "off", "--no-ui", "--metrics", "--slots"]
    if conf.tokens_per_step is not None:
        argv += ["-b", str(conf.tokens_per_step), "-ub", str(conf.tokens_per_step)]
    if not conf.prefix_cache:
        argv += ["--no-cache-prompt", "-cram", "0"]
    argv += [part for file in lora_files(conf).values() for part in ("--lora", file)]
    return ServeSpec(
        argv=(*argv, *flags(_raw_args(conf))),
        base_url=f"http://{ctx.host}:{ctx.port}",
        env=dict(conf.env),
        ready_timeout_s=conf.ready_timeout_s,
        stop_timeout_s=conf.stop_timeout_s,
    )


def _command(conf: EngineConf, ctx: ServeContext) -> tuple[str, ...]:
    if binary := conf.args.get("binary"):
        return (str(binary),)
    if ctx.python is None:
        raise ConfigError(
            "engine=llamacpp: its environment is not installed; run: bakeoff engines install "
            "llamacpp, or give a llama-server: engine.args.binary=PATH"
        )
    return (str(ctx.python), str(SERVER))
