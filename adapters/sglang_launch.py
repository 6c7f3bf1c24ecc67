"""How SGLang is started: neutral settings to flags of `sglang.launch_server`, what is refused.

Source: SGLang 0.5.23, srt/server_args.py with arg_groups/. Not run by us.
"""

from collections.abc import Mapping
from types import MappingProxyType

from adapters import launching
from adapters.arguments import flags
from adapters.settings import (
    CannotError,
    Row,
    Table,
    Words,
    flag,
    never,
    one_of,
    switch,
    translate,
)
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf, SpeculationConf

DECODE_LOG_INTERVAL = 10
"""Decode steps between two updates of the gauges. SGLang's own choice is 40: 0.8 s at 20 ms a
step, about as long as we wait between two scrapes; 10 steps are 0.2 s."""

_ALWAYS = (
    *("--random-seed", "0"),  # drawn at each start if it is not given
    "--enable-metrics",
    *("--decode-log-interval", str(DECODE_LOG_INTERVAL)),
    "--enable-cache-report",  # an answer's usage says how much of its prompt was cached
)
# /health answers 503 until the server's own warm-up is done, then generates a token and sleeps
# for a second; with this it says 200 at once.
_ENV = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
_METHODS = {
    "ngram": "NGRAM",
    "draft": "STANDALONE",
    "standalone": "STANDALONE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "nextn": "NEXTN",
    "mtp": "NEXTN",
}
_NEEDS_MODEL = frozenset({"draft", "standalone", "eagle3"})
_CHAINS = frozenset({"STANDALONE", "EAGLE", "EAGLE3", "NEXTN"})


def _cuda_graphs(value: bool) -> Words:
    off = ("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled")
    return Words(argv=() if value else off)


def _speculation(value: SpeculationConf) -> Words:
    """SGLang counts the token that is verified anyway among the drafted ones: one more than ours.

    A chain of drafts is three numbers, of which SGLang takes all or none.
    """
    method = value.method.lower()
    words = one_of(_METHODS, flag("--speculative-algorithm"), "drafts by a method that").say(method)
    if method in _NEEDS_MODEL and not value.model:
        raise CannotError("needs engine.speculation.model=FOLDER for a draft model")
    if method == "ngram" and value.model:
        raise CannotError("takes no engine.speculation.model: it drafts from the text")
    if value.model:
        words += Words(argv=("--speculative-draft-model-path", value.model))
    if value.tokens is not None:
        words += Words(argv=("--speculative-num-draft-tokens", str(value.tokens + 1)))
        if _METHODS[method] in _CHAINS:
            chain = ("--speculative-num-steps", str(value.tokens), "--speculative-eagle-topk", "1")
            words += Words(argv=chain)
    return words


def _lora(value: Mapping[str, str]) -> Words:
    """All of them may be in one batch; the base model takes a place of its own."""
    paths = tuple(f"{name}={path}" for name, path in value.items())
    argv = ("--enable-lora", "--lora-paths", *paths)
    return Words(argv=(*argv, "--max-loras-per-batch", str(len(value) + 1)))


def _said_together(value: object) -> Words:
    """Nothing here: the size of a chunk follows from two settings, see `_chunk`."""
    del value
    return Words()


SETTINGS: Table = MappingProxyType(
    {
        "dtype": flag("--dtype"),
        "quantization": flag("--quantization"),
        "kv_dtype": flag("--kv-cache-dtype"),
        "max_model_len": flag("--context-length"),
        "max_running": flag("--max-running-requests"),
        "tokens_per_step": flag("--max-prefill-tokens", "--chunked-prefill-size"),
        "memory_fraction": flag("--mem-fraction-static"),
        "kv_tokens": flag("--max-total-tokens"),
        "prefix_cache": switch("", "--disable-radix-cache"),
        "chunked_prefill": Row(say=_said_together),
        "cuda_graphs": Row(
            say=_cuda_graphs,
            flags=(
                *("--cuda-graph-backend-decode", "--cuda-graph-backend-prefill"),
                *("--disable-cuda-graph", "--disable-decode-cuda-graph"),
                "--disable-prefill-cuda-graph",
            ),
        ),
        "speculation": Row(
            say=_speculation,
            flags=(
                *("--speculative-algorithm", "--speculative-draft-model-path"),
                *("--speculative-draft-model", "--speculative-num-draft-tokens"),
                *("--speculative-num-steps", "--speculative-eagle-topk"),
            ),
        ),
        "lora": Row(say=_lora, flags=("--enable-lora", "--lora-paths", "--max-loras-per-batch")),
        "tp": flag("--tp-size", "--tensor-parallel-size"),
        "pp": flag("--pp-size", "--pipeline-parallel-size"),
        "gpus": launching.GPUS,
        "threads": never(
            "runs on GPUs and has no setting for CPU threads; PyTorch's own is "
            "engine.env.OMP_NUM_THREADS"
        ),
    }
)
OWNED = {
    **dict.fromkeys(("--model-path", "--model"), "model.path"),
    **dict.fromkeys(("--host", "--port"), "launch.port"),
    "--served-model-name": "model.served_name",
    **dict.fromkeys(
        ("--random-seed", "--enable-metrics", "--decode-log-interval", "--enable-cache-report"),
        "engine=sglang as it is",
    ),
}


def serve_spec(conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
    """The command line of `python -m sglang.launch_server`, or what follows its image."""
    argv = [*launching.command(conf, ctx, "-m", "sglang.launch_server")]
    argv += ["--model-path", launching.model_name(model, ctx)]
    argv += ["--served-model-name", launching.served_name(model)]
    argv += ["--host", ctx.host, "--port", str(ctx.port), *_ALWAYS]
    words = Words(env=_ENV) + translate(conf, SETTINGS) + Words(argv=_chunk(conf))
    if ctx.model_path is not None and not conf.speculation.model:  # that may be a hub's name
        words += Words(env={"HF_HUB_OFFLINE": "1"})
    return launching.serve_spec(conf, ctx, argv, words + Words(argv=tuple(flags(conf.args))))


def _chunk(conf: EngineConf) -> tuple[str, ...]:
    """A prompt's share of one step: all of it, `tokens_per_step`, or SGLang's own (by memory)."""
    if conf.chunked_prefill is False:
        return ("--chunked-prefill-size", "-1")
    if conf.tokens_per_step is not None:
        return ("--chunked-prefill-size", str(conf.tokens_per_step))
    return ()
