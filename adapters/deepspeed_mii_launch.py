"""How a DeepSpeed-MII deployment is started: neutral settings to flags of our server script.

MII itself is Python without a command line. Its ports are derived from the one that is measured,
so that deployments beside each other do not collide. Source: DeepSpeed-MII 0.3.3 (mii/config.py)
and DeepSpeed 0.19.8 (inference/v2/ragged/manager_configs.py).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from adapters import launching
from adapters.arguments import flag as flag_of
from adapters.arguments import flags, refuse
from adapters.settings import (
    Row,
    Table,
    Words,
    flag,
    never,
    one_of,
    only,
    translate,
    variable,
)
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, LaunchMode, ModelConf, Route
from harness.errors import ConfigError

SERVER = Path(__file__).parent / "servers" / "mii_server.py"
DEFAULT_MAX_RUNNING = 512  # max_ragged_sequence_count
DEFAULT_TOKENS_PER_STEP = 768  # max_ragged_batch_size
RAW_FLAGS = ("--reserve-bytes", "--chat-template", "--serve")
_LAST_PORT = 65535
_WHOLE_LOG = Words(env={"PYTHONUNBUFFERED": "1"})  # what its processes print before they are ended

_SAID_TOGETHER = Row(say=lambda _value: Words())  # GPUs are numbered anew in a container
_RUNNING = Row(say=_SAID_TOGETHER.say, flags=("--max-running",))  # depends on tokens_per_step
SETTINGS: Table = MappingProxyType(
    {
        "dtype": never("has no such setting: it takes the checkpoint's own, float16 or bfloat16"),
        "quantization": one_of(
            {"wf6af16": "wf6af16"}, flag("--quantization-mode"), "quantises to what"
        ),
        "kv_dtype": never("has no such setting: its KV cache has the type of the weights"),
        "max_model_len": flag("--max-length"),
        "max_running": _RUNNING,
        "tokens_per_step": flag("--tokens-per-step"),
        "memory_fraction": never(
            "leaves a number of bytes free, not a fraction: engine.args.reserve_bytes=1000000000 "
            "is its own choice; or give engine.kv_tokens"
        ),
        "kv_tokens": flag("--kv-tokens"),
        "prefix_cache": only(allowed=False, reason="has no prefix cache"),
        "chunked_prefill": only(
            allowed=True, reason="always cuts prompts to fit beside decoding (SplitFuse)"
        ),
        "cuda_graphs": only(allowed=False, reason="has no CUDA graphs"),
        "speculation": never("has no speculative decoding"),
        "lora": never("has no LoRA adapters"),
        "tp": flag("--tensor-parallel"),
        "pp": only(allowed=1, reason="has no pipeline stages; it shares layers: engine.tp"),
        "gpus": Row(say=_SAID_TOGETHER.say, flags=("--gpus",)),
        "threads": variable("OMP_NUM_THREADS"),
    }
)
OWNED: Mapping[str, str] = MappingProxyType(
    {
        "--model": "model.path",
        "--served-name": "model.served_name",
        "--replica-num": "engine.tp (one replica is measured; the report says how many are needed)",
        **dict.fromkeys(("--host", "--openai-port", "--grpc-port"), "launch.port"),
        **dict.fromkeys(("--rest-port", "--zmq-port", "--torch-dist-port"), "launch.port"),
    }
)


def check_together(conf: EngineConf) -> None:
    """Raise ConfigError for settings that MII has not together, and for unknown raw arguments."""
    most = conf.tokens_per_step or DEFAULT_TOKENS_PER_STEP
    if conf.max_running is not None and conf.max_running > most:
        reason = (
            f"engine=deepspeed_mii decodes no more sequences than engine.tokens_per_step={most}; "
            "raise that"
        )
        raise refuse("engine.max_running", conf.max_running, reason)
    for key, value in conf.args.items():
        if flag_of(key) not in RAW_FLAGS:
            known = ", ".join(name.removeprefix("--").replace("-", "_") for name in RAW_FLAGS)
            reason = (
                f"is no flag of bakeoff's MII server; it takes {known}, and under serve any "
                "further keyword of mii.serve"
            )
            raise refuse(f"engine.args.{key}", value, reason)
    if conf.kv_tokens is not None and "reserve_bytes" in conf.args:
        reason = "with engine.kv_tokens the KV cache has two sizes; give one of them"
        raise refuse("engine.args.reserve_bytes", conf.args["reserve_bytes"], reason)


def served_name(model: ModelConf) -> str:
    """What requests call the model: as told, else as a hub does, if that is where it is from."""
    return model.served_name or (model.repo if not model.path else "") or model.name


def serve_spec(conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
    """The command line of the server script, in MII's environment or in an image with MII in it."""
    loaded = launching.model_name(model, ctx)
    if conf.kv_tokens is not None and ctx.model_path is None:
        reason = "engine=deepspeed_mii sizes it in blocks, by the model's files: model.path=FOLDER"
        raise refuse("engine.kv_tokens", conf.kv_tokens, reason)
    name = served_name(model)
    if conf.route is Route.CHAT and ctx.model_path is None and name != loaded:
        reason = f"MII's OpenAI server calls a model of a hub {loaded}; leave this out"
        raise refuse("model.served_name", name, reason)
    argv = [*_python(conf, ctx), str(SERVER), "--model", loaded]
    argv += ["--served-name", name, "--host", ctx.host, *_ports(conf, ctx)]
    argv += ["--gpus", ",".join(map(str, _gpus(conf, ctx)))]
    if running := _running(conf):
        argv += ["--max-running", str(running)]
    words = _WHOLE_LOG + translate(conf, SETTINGS) + Words(argv=tuple(flags(conf.args)))
    spec = launching.serve_spec(conf, ctx, argv, words)
    return spec if ctx.mode is not LaunchMode.DOCKER else _with_script(spec)


def _with_script(spec: ServeSpec) -> ServeSpec:
    """The same, with the script seen inside the container."""
    return replace(spec, mounts=(*spec.mounts, SERVER))


def _python(conf: EngineConf, ctx: ServeContext) -> tuple[str, ...]:
    """An interpreter that has MII: the image's, `engine.program`, or the environment's."""
    if ctx.mode is LaunchMode.DOCKER:
        if conf.image is None or not conf.image.reference:
            raise ConfigError(
                "engine.image.reference: not given; DeepSpeed-MII has no official image; give one "
                "with deepspeed-mii in it, or use launch=process"
            )
        return tuple(conf.image.command) or ("python3",)
    return launching.command(conf, ctx, str(SERVER))[:1]


def _gpus(conf: EngineConf, ctx: ServeContext) -> list[int]:
    """MII takes GPUs by number and heeds no CUDA_VISIBLE_DEVICES; a container counts from 0."""
    if conf.gpus is None or ctx.mode is LaunchMode.DOCKER:
        return list(range(conf.tp))
    return conf.gpus


def _running(conf: EngineConf) -> int | None:
    """MII refuses to start with more sequences than tokens in a step, its own default too."""
    if conf.max_running is None and (conf.tokens_per_step or _LAST_PORT) < DEFAULT_MAX_RUNNING:
        return conf.tokens_per_step
    return conf.max_running


def _ports(conf: EngineConf, ctx: ServeContext) -> list[str]:
    """Ports from the measured one on: OpenAI, load balancer, replica's GPUs, REST, ZMQ, torch."""
    is_chat = conf.route is Route.CHAT
    grpc = ctx.port + 1 if is_chat else ctx.port
    rest = grpc + conf.tp + 1
    last = rest + 2
    if last > _LAST_PORT:
        reason = f"engine=deepspeed_mii needs the ports up to {last} too; choose a lower one"
        raise refuse("launch.port", ctx.port, reason)
    ports = ["--grpc-port", str(grpc), "--rest-port", str(rest)]
    ports += ["--zmq-port", str(rest + 1), "--torch-dist-port", str(last)]
    return [*ports, "--openai-port", str(ctx.port)] if is_chat else ports
