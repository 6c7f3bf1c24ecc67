"""The engine-build flow of TensorRT-LLM, up to 1.2.1: weights to a checkpoint, that to an engine.

Each output is named by a hash of all that it was made with, and is found again. Upstream removed
the flow in 1.3.0rc21. Source: TensorRT-LLM 1.2, examples/models and commands/build.py; not run.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from adapters import launching
from adapters.arguments import refuse
from adapters.settings import (
    DECLARED,
    NOTHING,
    CannotError,
    Row,
    Table,
    Words,
    flag,
    never,
    translate,
)
from harness.adapter import PrepareStep, ServeContext
from harness.config import EngineConf, LaunchMode
from harness.errors import ConfigError

FLOW = "flow"
FLOWS = ("pytorch", "engine")
CONVERT = "convert_checkpoint"
OWN_KEYS = (FLOW, CONVERT)  # of engine.args: for us, not for the engine
_LAST = (1, 2, 1)
_HASH_DIGITS = 16
_WEIGHTS = ("int8", "int4")
_PYTORCH_ONLY = never("has it only as engine=tensorrt_llm engine.args.flow=pytorch")
_PIN = re.compile(r"tensorrt[-_]llm(?:/release)?(?:==|:)(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)


def _weights(value: str) -> Words:
    if value not in _WEIGHTS:
        raise CannotError("converts to weights of int8 or int4; other formats need flow=pytorch")
    return Words(argv=("--use_weight_only", "--weight_only_precision", value))


def _kv_dtype(value: str) -> Words:
    if value != "int8":
        raise CannotError("converts to a KV cache of int8; others need flow=pytorch")
    return Words(argv=("--int8_kv_cache",))


def _paged_attention(value: bool) -> Words:
    return Words(argv=("--use_paged_context_fmha", "enable" if value else "disable"))


def _lengths(value: int) -> Words:
    # the default of --max_input_len is 1024 whatever the sequence length is
    return Words(argv=("--max_seq_len", str(value), "--max_input_len", str(value)))


_CONVERT: Table = MappingProxyType(
    {
        **DECLARED,
        "dtype": flag("--dtype"),
        "quantization": Row(say=_weights),
        "kv_dtype": Row(say=_kv_dtype),
        "tp": flag("--tp_size"),
        "pp": flag("--pp_size"),
    }
)
_BUILD: Table = MappingProxyType(
    {
        **DECLARED,
        "max_model_len": Row(say=_lengths),
        "max_running": flag("--max_batch_size"),
        "tokens_per_step": flag("--max_num_tokens"),
    }
)


def _built_in(row: Row) -> Row:
    """Said when the engine is built, and not again: only refused where it cannot be built."""

    def say(value: Any) -> Words:
        row.say(value)
        return NOTHING

    return Row(say=say, flags=row.flags)


BUILT: Table = MappingProxyType(
    {
        **{key: _built_in(_CONVERT[key]) for key in ("dtype", "quantization", "kv_dtype")},
        "speculation": _PYTORCH_ONLY,
        "lora": _PYTORCH_ONLY,
    }
)
"""Rows that every server of built engines shares; it adds those of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Where an engine lies, and the steps that make it."""

    folder: str
    steps: tuple[PrepareStep, ...] = ()


def is_built(conf: EngineConf) -> bool:
    """Whether an engine is built first; ConfigError for a flow that there is not."""
    flow = conf.args.get(FLOW, FLOWS[0])
    if flow not in FLOWS:
        reason = f"must be one of: {', '.join(FLOWS)}; engine=triton serves a built engine too"
        raise refuse(f"engine.args.{FLOW}", flow, reason)
    return bool(flow == FLOWS[1])


def _made_by(conf: EngineConf, ctx: ServeContext) -> str:
    """Image or packages that the engine is built with; ConfigError where they are too new."""
    if ctx.mode is LaunchMode.DOCKER:
        made_by = conf.image.reference if conf.image else ""
    else:
        made_by = " ".join(conf.recipe.packages)
    found = _PIN.search(made_by)
    if found and tuple(map(int, found.groups())) > _LAST:
        raise ConfigError(
            f"engine={conf.name}: {made_by} builds no engines any more (removed upstream in "
            "1.3.0rc21); take 1.2.1 or older, or engine=tensorrt_llm engine.args.flow=pytorch"
        )
    return made_by


def built_engine(conf: EngineConf, ctx: ServeContext) -> Engine:
    """The engine of this model and these settings, and its two steps.

    A model that changes under the same path is not seen: its engine must be deleted by hand.
    """
    script, weights = conf.args.get(CONVERT), ctx.model_path
    if weights is None:
        raise ConfigError("model.path: not given; an engine is built from a folder: model.path=")
    if not isinstance(script, str) or not script:
        raise ConfigError(
            f"engine.args.{CONVERT}: not given; say which script converts this model, such as "
            "/app/tensorrt_llm/examples/models/core/llama/convert_checkpoint.py in the image"
        )
    python, build = _programs(ctx)
    convert = [python, script, "--model_dir", str(weights), *translate(conf, _CONVERT).argv]
    built = [build, *_build_words(conf)]
    made_by = _made_by(conf, ctx)
    checkpoint = kept(ctx, "checkpoint", [made_by, *convert])
    engine = kept(ctx, "engine", [made_by, *convert, *built])
    to_engine = [*built, "--checkpoint_dir", str(checkpoint), "--output_dir", str(engine)]
    return Engine(
        folder=str(engine),
        steps=(
            step(conf, "converting the weights", [*convert, "--output_dir", str(checkpoint)]),
            step(conf, "building the engine", to_engine),
        ),
    )


def step(conf: EngineConf, what: str, argv: Sequence[str]) -> PrepareStep:
    """One step, on the engine's GPUs; the last argument is its output."""
    env = translate(conf, MappingProxyType({**DECLARED, "gpus": launching.GPUS})).env
    return PrepareStep(what=what, argv=tuple(argv), output=Path(argv[-1]), env={**env, **conf.env})


def kept(ctx: ServeContext, kind: str, made_with: Sequence[str]) -> Path:
    """Where an output is kept: one folder for each set of arguments."""
    digest = hashlib.sha256(msgspec.json.encode(list(made_with))).hexdigest()[:_HASH_DIGITS]
    return ctx.cache_folder / f"trtllm-{kind}-{digest}"


def _programs(ctx: ServeContext) -> tuple[str, str]:
    if ctx.mode is LaunchMode.DOCKER or ctx.python is None:
        return "python3", "trtllm-build"
    return str(ctx.python), launching.script(ctx, "trtllm-build")


def _build_words(conf: EngineConf) -> list[str]:
    fixed: Mapping[str, Any] = {
        "--gemm_plugin": "auto",
        "--gpt_attention_plugin": "auto",
        "--remove_input_padding": "enable",
        "--context_fmha": "enable",
        "--kv_cache_type": "paged",
    }
    paged = _paged_attention(conf.prefix_cache or bool(conf.chunked_prefill))
    words = translate(conf, _BUILD) + paged
    return [word for pair in fixed.items() for word in pair] + list(words.argv)
