"""How TGI's launcher is started: neutral settings to flags and variables, and what is refused.

Said always: the number of shards (TGI takes every GPU by itself), a limit on admitted requests far
above any load (its own is 128, above which it refuses), no telemetry, and ports of its own.
Source: text-generation-inference 3.3.7, launcher/src/main.rs and docs/source/reference.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from adapters import launching
from adapters.arguments import flag as spelled
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
    translate,
    variable,
)
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, LaunchMode, ModelConf, SpeculationConf
from harness.errors import ConfigError

ADMITTED_REQUESTS = 65_536  # no load reaches it: requests wait in TGI's queue, as in other engines
_ADMITTED = "--max-concurrent-requests"
_LAST_PORT = 65_535


def _same(words: Sequence[str]) -> dict[str, str]:
    return dict(zip(words, words, strict=True))


_DTYPES = _same(("float16", "bfloat16"))
_KV_DTYPES = _same(("fp8_e4m3fn", "fp8_e5m2"))
_QUANTIZATIONS = _same(
    (
        *("awq", "compressed-tensors", "eetq", "exl2", "gptq", "marlin", "fp8"),
        *("bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4"),
    )
)
_LEAST_LENGTH = 2  # a token in, a token out


def _max_model_len(value: int) -> Words:
    if value < _LEAST_LENGTH:
        raise CannotError("needs room for a token in and a token out: at least 2")
    return Words(argv=("--max-total-tokens", str(value), "--max-input-tokens", str(value - 1)))


def _cuda_graphs(value: bool) -> Words:
    return NOTHING if value else Words(argv=("--cuda-graphs", "0"))


def _speculation(value: SpeculationConf) -> Words:
    if value.method not in {"ngram", "medusa"}:
        raise CannotError(
            "drafts by a method that can be: medusa (a model that brings its heads), ngram"
        )
    if value.model:
        raise CannotError("has no draft model: leave engine.speculation.model empty")
    if value.tokens is None:
        raise CannotError("needs engine.speculation.tokens, how many are drafted at a time")
    return Words(argv=("--speculate", str(value.tokens)))


def _lora(value: Mapping[str, str]) -> Words:
    for name, path in value.items():
        if "," in path or set(name) & set(",="):
            raise CannotError(f"lists its adapters as NAME=PATH,NAME=PATH: {name}={path} is none")
    listed = ",".join(f"{name}={path}" for name, path in value.items())
    return Words(argv=("--lora-adapters", listed))


SETTINGS: Table = MappingProxyType(
    {
        "dtype": one_of(_DTYPES, flag("--dtype"), "has a dtype that"),
        "quantization": one_of(_QUANTIZATIONS, flag("--quantize"), "has a quantization that"),
        "kv_dtype": one_of(_KV_DTYPES, flag("--kv-cache-dtype"), "has a KV cache whose dtype"),
        "max_model_len": Row(
            say=_max_model_len,
            flags=("--max-total-tokens", "--max-input-tokens", "--max-input-length"),
        ),
        "max_running": flag("--max-batch-size"),
        "tokens_per_step": flag("--max-batch-prefill-tokens"),
        "memory_fraction": flag("--cuda-memory-fraction"),
        "kv_tokens": never(
            "infers at its warm-up how many tokens its KV cache holds, and ignores a number that "
            "is given; engine.memory_fraction says how much memory it may take"
        ),
        "prefix_cache": variable("PREFIX_CACHING"),
        "chunked_prefill": variable("PREFILL_CHUNKING"),
        "cuda_graphs": Row(say=_cuda_graphs, flags=("--cuda-graphs",)),
        "speculation": Row(say=_speculation, flags=("--speculate",)),
        "lora": Row(say=_lora, flags=("--lora-adapters",)),
        "tp": flag("--num-shard", "--sharded"),
        "pp": only(1, "has no pipeline of stages: share the layers with engine.tp"),
        "gpus": launching.GPUS,
        "threads": never("runs on GPUs and has no word for CPU threads"),
    }
)
OWNED = {
    "--model-id": "model.path or model.repo",
    **dict.fromkeys(
        (
            *("--port", "-p", "--hostname"),
            *("--prometheus-port", "--master-port", "--shard-uds-path"),
        ),
        "launch.port",
    ),
    "--max-batch-total-tokens": "engine.memory_fraction",
    "--usage-stats": "engine=tgi as it is",
}


def check_together(conf: EngineConf) -> None:
    """Raise ConfigError for settings that TGI has not together."""
    if conf.dtype is not None and conf.quantization is not None:
        reason = f"engine=tgi takes none beside engine.quantization={conf.quantization}"
        raise refuse("engine.dtype", conf.dtype, f"{reason}; give one of them")


def serve_spec(conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
    """The launcher's command line; in a container, what follows the image's entry point."""
    if ctx.mode is LaunchMode.PROCESS and not conf.program:
        raise ConfigError(
            "engine.program: not given; no package holds TGI: give a launcher of your own, "
            "engine.program=text-generation-launcher, or take its image, launch=docker"
        )
    prometheus, master = _side_ports(ctx.port)
    argv = [*launching.command(conf, ctx), "--model-id", launching.model_name(model, ctx)]
    argv += ["--hostname", ctx.host, "--port", str(ctx.port)]
    argv += ["--prometheus-port", str(prometheus), "--master-port", str(master)]
    argv += ["--shard-uds-path", f"/tmp/text-generation-server-{ctx.port}"]  # noqa: S108  # as its own
    argv += ["--usage-stats", "off"]
    if _ADMITTED not in map(spelled, conf.args):
        argv += [_ADMITTED, str(ADMITTED_REQUESTS)]
    words = translate(conf, SETTINGS) + Words(argv=tuple(flags(conf.args)))
    return launching.serve_spec(conf, ctx, argv, words)


def _side_ports(port: int) -> tuple[int, int]:
    """The two ports beside `port`: TGI binds one for metrics that it does not serve there.

    By itself it takes 9000 and 29500, which a second server on the machine would find taken.
    """
    step = 1 if port + 2 <= _LAST_PORT else -1
    return port + step, port + 2 * step
