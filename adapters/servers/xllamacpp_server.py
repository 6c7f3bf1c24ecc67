"""llama.cpp's own HTTP server out of the `xllamacpp` wheel, with the flags of llama-server.

Runs inside the engine's own environment, started by path and never imported by bakeoff. SIGTERM
ends it at once. Exit code 1: the model or the socket cannot be had, and the log above says why.
"""

import argparse
import faulthandler
import signal
import sys
from collections.abc import Sequence
from typing import Any

_ON_OFF = argparse.BooleanOptionalAction
_ATTENTION = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
_DRAFTS = ("none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


def options() -> argparse.ArgumentParser:
    """The flags: names, meanings and defaults are llama-server's."""
    parser = argparse.ArgumentParser(prog="xllamacpp_server", allow_abbrev=False)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-a", "--alias", dest="model_alias")
    parser.add_argument("-fit", "--fit", choices=("on", "off"), default="on")
    parser.add_argument("-fa", "--flash-attn", choices=_ATTENTION, default="auto")
    parser.add_argument("--repack", action=_ON_OFF, default=True)
    parser.add_argument("-ctk", "--cache-type-k", choices=_CACHE_TYPES)
    parser.add_argument("-ctv", "--cache-type-v", choices=_CACHE_TYPES)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("-tb", "--threads-batch", type=int)
    parser.add_argument("--spec-type", choices=_DRAFTS, default="none")
    parser.add_argument("--lora", action="append", default=[])
    add = parser.add_argument
    add("-np", "--parallel", dest="n_parallel", type=int, default=4)
    add("-c", "--ctx-size", dest="n_ctx", type=int, default=0)
    add("-b", "--batch-size", dest="n_batch", type=int)
    add("-ub", "--ubatch-size", dest="n_ubatch", type=int)
    add("-ngl", "--n-gpu-layers", dest="n_gpu_layers", type=int)
    add("-cram", "--cache-ram", dest="cache_ram_mib", type=int)
    add("-sps", "--slot-prompt-similarity", dest="slot_prompt_similarity", type=float)
    add("-lv", "--verbosity", dest="verbosity", type=int)
    add("--cache-reuse", dest="n_cache_reuse", type=int)
    add("--threads-http", dest="n_threads_http", type=int)
    add("--timeout", dest="timeout_write", type=int)
    add("--sse-ping-interval", dest="sse_ping_interval", type=int)
    add("--cache-prompt", action=_ON_OFF)
    add("-kvu", "--kv-unified", action=_ON_OFF, default=False)
    add("-no-kvu", dest="kv_unified", action="store_false")
    add("--cont-batching", action=_ON_OFF)
    add("--context-shift", dest="ctx_shift", action=_ON_OFF)
    add("--swa-full", action=_ON_OFF)
    add("--warmup", action=_ON_OFF)
    add("--ui", action=_ON_OFF)
    add("--jinja", dest="use_jinja", action=_ON_OFF)
    add("--metrics", dest="endpoint_metrics", action=_ON_OFF)
    add("--slots", dest="endpoint_slots", action=_ON_OFF)
    return parser


_TRANSLATED = {
    "model",
    "host",
    "model_alias",
    "fit",
    "flash_attn",
    "repack",
    "cache_type_k",
    "cache_type_v",
    "threads",
    "threads_batch",
    "spec_type",
    "lora",
}


def parameters(args: argparse.Namespace, library: Any) -> Any:
    """The library's CommonParams for these flags; those not given keep its defaults."""
    params = library.CommonParams()
    params.model.path = args.model
    params.hostnames = [args.host]
    params.model_alias = {args.model_alias} if args.model_alias else set()
    params.fit_params = args.fit == "on"
    params.no_extra_bufts = not args.repack
    attention = f"LLAMA_FLASH_ATTN_TYPE_{_ATTENTION[args.flash_attn]}"
    params.flash_attn_type = getattr(library.llama_flash_attn_type, attention)
    for key in ("cache_type_k", "cache_type_v"):
        if value := getattr(args, key):
            setattr(params, key, getattr(library.ggml_type, f"GGML_TYPE_{value.upper()}"))
    if args.threads:
        params.cpuparams.n_threads = args.threads
    if batch := args.threads_batch or args.threads:
        params.cpuparams_batch.n_threads = batch
    if args.spec_type != "none":
        draft = f"COMMON_SPECULATIVE_TYPE_{args.spec_type.upper().replace('-', '_')}"
        params.speculative.types = [getattr(library.common_speculative_type, draft)]
    if args.lora:
        params.lora_adapters = [library.CommonAdapterLoraInfo(path, 1.0) for path in args.lora]
    for key, value in vars(args).items():
        if key not in _TRANSLATED and value is not None:
            setattr(params, key, value)
    return params


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal ends the process."""
    args = options().parse_args(argv)
    faulthandler.enable()  # a crash in native code names its signal in the log
    import xllamacpp

    print(f"xllamacpp {xllamacpp.__version__}", flush=True)
    try:
        server = xllamacpp.Server(parameters(args, xllamacpp))
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        print(f"xllamacpp_server: model {args.model}: {error}", file=sys.stderr, flush=True)
        return 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print(f"serving on {server.listening_address}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
