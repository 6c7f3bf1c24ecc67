"""What SGLang says of itself: metrics, server information, its log and the failures in it.

Source: SGLang 0.5.23, srt/observability/metrics_collector.py, srt/model_executor/,
srt/managers/scheduler.py; the older words of its log from public logs of 0.4 and 0.5.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from adapters.diagnosis import Failure
from adapters.failures import json_value
from adapters.metrics import known_sample
from harness.types import EngineIdentity, EngineSample, LogFacts

LOG_PREFIX = r"\[\d{4}-[^\]]*\] "
_GIB = 1 << 30  # the log's GB
_MODEL = "check model.path, and that this SGLang knows the model"
_LESS = "lower engine.memory_fraction, engine.tokens_per_step or engine.max_running"

FAILURES = (
    Failure(
        pattern=r"Not enough memory\. Please try to increase --mem-fraction-static"
        r"|Loaded weights leave no GPU memory for the KV cache",
        advice="the weights leave no room for the KV cache: raise engine.memory_fraction, give "
        "more GPUs (engine.tp), or take a smaller model",
    ),
    Failure(
        pattern=r"Capture [\w -]*failed:",
        advice="lower engine.memory_fraction or engine.max_running, or do without graphs: "
        "engine.cuda_graphs=false",
    ),
    Failure(
        pattern=r"out of memory\. Try to lower your batch size",
        advice="the KV cache is full: lower engine.max_running or raise engine.memory_fraction",
    ),
    Failure(
        pattern=r"CUDA out of memory|OutOfMemoryError",
        advice=f"the GPU's memory is full: {_LESS}",
    ),
    Failure(
        pattern=r"SGLang only supports sm\d+",
        advice="this GPU is too old for SGLang: take another engine",
    ),
    Failure(
        pattern=r"no kernel image is available|driver (on your system )?is too old",
        advice="GPU or driver do not fit this build of SGLang, which is for CUDA 13: use "
        "launch=docker with a fitting image, or update the driver",
    ),
    Failure(
        pattern=r"Model architectures .* (are not supported|failed)|Cannot find model module",
        advice=_MODEL,
    ),
    Failure(pattern=r"Unknown quantization", advice="change engine.quantization"),
    Failure(
        pattern=r"Repo id must be in the form|does not appear to have a file named"
        r"|couldn't connect to|LocalEntryNotFoundError|not a valid model identifier",
        advice="give a model folder that exists, with config.json and tokenizer: model.path",
    ),
    Failure(
        pattern=r"address already in use|Port is already in use",
        advice="the port is in use: leave launch.port=null for a free one, or end what holds it",
    ),
    Failure(
        pattern=r"error: (unrecognized arguments|argument |the following arguments)",
        advice="the server does not take this flag: change engine.args",
    ),
    Failure(
        pattern=r"ModuleNotFoundError|No module named '?sglang",
        advice="the engine's environment is incomplete: run: bakeoff engines install sglang",
    ),
    Failure(
        pattern=r"watchdog timeout",
        advice="a step took longer than the watchdog allows (300 s): see the engine's log, or set "
        "engine.args.watchdog-timeout",
    ),
    Failure(pattern=r"Initialization failed\. warmup error:", advice="see the engine's log"),
    Failure(pattern=r"Scheduler hit an exception:", advice="see the engine's log below that line"),
    Failure(
        pattern=r"Received sigquit from a child process|SIGQUIT received",
        advice="one of the server's processes died: see the engine's log above that line",
    ),
)
# A counter with labels is printed from its first count on. This one comes with the first prompt,
# and only of versions that count the others too: those that are missing have counted nothing.
_FIRST_COUNTED = (
    b"sglang:prefill_effective_tokens_total",
    b"sglang_prefill_effective_tokens_total",
)
_COUNTERS = (
    *("prompt_tokens_total", "generation_tokens_total", "prefix_cached_tokens_total"),
    "preemptions_total",
)
_DECIMAL = r"(\d+(?:\.\d+)?)"
_RANK = re.compile(r"\[\d{4}-\d\d-\d\d [\d:.]+ ?([^\]]*)\] ")
_LOADED = re.compile(
    rf"Load weight end\.(?:.*?\belapsed={_DECIMAL} s)?(?:.*?\bmem usage={_DECIMAL} GB)?"
)
_CAPTURED = re.compile(rf"Capture [^.]* end\..*?(?:Time elapsed: |\belapsed=){_DECIMAL} s")
_CACHE = re.compile(r"KV Cache is allocated\.(.*)")
_CACHE_SIZES = re.compile(rf"\b(?:K|V|KV) size: {_DECIMAL} GB")
_CAPACITY = re.compile(r"\bmax_total_num_tokens=(\d+), ")


def sample(metrics_body: bytes) -> EngineSample:
    """Running, waiting, KV usage and counters.

    The gauges move with a batch of prompts and with every n-th decode step only; the counters of
    tokens when a request ends. A retraction is a preemption. Cached tokens are counted by where
    they lay; their sum is meant. What speculation drafts is not counted, only its share given.
    """
    found = known_sample(metrics_body)
    if not any(name in metrics_body for name in _FIRST_COUNTED):
        return found
    missing: dict[str, Any] = {name: 0.0 for name in _COUNTERS if getattr(found, name) is None}
    return replace(found, **missing)


def identity(info_body: bytes, found: EngineIdentity) -> EngineIdentity:
    """What `/v1/models` has told, with version and limits from `/server_info`.

    The limit on running requests is what the scheduler settled on, which may be less than the
    flag; with data parallelism both it and the KV capacity are of one replica.
    """
    info = json_value(info_body)
    if not isinstance(info, dict):
        return found
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states else {}
    running = (
        state.get("effective_max_running_requests_per_dp") if isinstance(state, dict) else None
    )
    named = info.get("served_model_name") or info.get("model_path")
    return replace(
        found,
        version=_name(info.get("version")),
        model=found.model or _name(named),
        max_model_len_tokens=found.max_model_len_tokens or _count(info.get("context_length")),
        max_running=_count(running) or _count(info.get("max_running_requests")),
        kv_capacity_tokens=_count(info.get("max_total_num_tokens")),
    )


def log_facts(log: str) -> LogFacts:
    """From the lines of the start; each rank writes its own.

    Times are of the slowest rank, bytes the sum over ranks and a draft model.
    """
    load: dict[str, float] = {}
    capture: dict[str, float] = {}
    weights, cache, capacity = [], [], None
    for rank, line in _ranked(log):
        if found := _LOADED.search(line):
            seconds, size = found.groups()
            if seconds is not None:
                load[rank] = load.get(rank, 0.0) + float(seconds)
            if size is not None:
                weights.append(float(size))
        elif found := _CAPTURED.search(line):
            capture[rank] = capture.get(rank, 0.0) + float(found[1])
        elif found := _CACHE.search(line):
            cache += [float(size) for size in _CACHE_SIZES.findall(found[1])]
        elif found := _CAPACITY.search(line):
            capacity = int(found[1])
    return LogFacts(
        load_s=max(load.values(), default=None),
        compile_s=max(capture.values(), default=None),
        weights_bytes=int(sum(weights) * _GIB) if weights else None,
        kv_bytes=int(sum(cache) * _GIB) if cache else None,
        kv_capacity_tokens=capacity,
    )


def _ranked(log: str) -> Iterator[tuple[str, str]]:
    """Each line of the log with the rank in its prefix, such as `TP0`; empty for one process."""
    for line in log.splitlines():
        prefix = _RANK.match(line)
        yield (prefix[1] if prefix else ""), line


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
