"""What llama.cpp's server says of itself: metrics, slots, properties, and its log.

Source: llama-server b11434, /metrics, /slots and /props as seen; it exposes no KV usage. The log:
as b11434 and the wheel 2026.10.11549 write it.
"""

import re
from typing import Any

from adapters.diagnosis import SIGILL, Failure
from adapters.failures import json_value
from adapters.metrics import Metrics
from harness.types import EngineIdentity, EngineSample, LogFacts, Provenance

LOG_PREFIX = r"[\d.]+ [A-Z] (?:\w+ +)?"
_SLOTS = re.compile(r"n_slots = (\d+), n_ctx_slot = (\d+)(?:, kv_unified = '(\w+)')?")
_CONTEXT = re.compile(r"^.*llama_context: n_ctx +=\s*(\d+)\s*$", re.MULTILINE)
_BUFFERS = r"{} buffer size = +(\d+(?:\.\d+)?) MiB"
_WEIGHTS, _KV = (re.compile(_BUFFERS.format(what)) for what in ("model", "KV"))
_CLOCK = r"^(\d+)\.(\d\d)\.(\d{{3}})\.(\d{{3}}) .*{}"  # minutes, seconds, milli, micro
_LOADING, _LOADED = (
    re.compile(_CLOCK.format(what), re.MULTILINE)
    for what in (": loading model '", ": model loaded")
)
_SMALLER = "lower engine.max_running or engine.max_model_len, or take a smaller model"
_UNLOADABLE = "the model cannot be loaded: check model.path and the engine's log"

FAILURES = (
    Failure(
        pattern=r"couldn't bind HTTP server socket",
        advice="the port is in use: leave launch.port=null for a free one, or end what holds it",
    ),
    Failure(
        pattern=r"failed to load lora adapter",
        advice="the LoRA adapter cannot be loaded: check the files in engine.lora",
    ),
    Failure(pattern=r"no such file or directory", advice="give a file that exists: model.path"),
    Failure(
        pattern=r"invalid magic characters",
        advice="the file is not GGUF: give model.path a GGUF file, or convert the model",
    ),
    Failure(
        pattern=r"failed to read (key-value pairs|tensor)|not within the file bounds|corrupted",
        advice="the model file is cut or damaged: fetch it again and check its size",
    ),
    Failure(
        pattern=r"unknown model architecture",
        advice="this llama.cpp is too old for the model: take a newer engine or another model",
    ),
    Failure(
        pattern=SIGILL.pattern,
        advice="the engine uses CPU instructions that fail on this machine: set "
        "engine.args.no-repack=true, or use a llama-server built here (engine.program)",
    ),
    Failure(
        pattern=r"(unable|failed) to allocate|out of memory|bad_alloc|not enough memory",
        advice=f"not enough memory: {_SMALLER}",
    ),
    Failure(
        pattern=r"failed to create[_ ]context|failed to initialize the context",
        advice=f"the context could not be made: {_SMALLER}",
    ),
    Failure(
        pattern=r"context size has been exceeded|exceeds the available context size",
        advice="prompt and answer do not fit a slot: raise engine.max_model_len",
    ),
    Failure(
        pattern=r"invalid argument: |unrecognized arguments: |invalid (choice|value)",
        advice="the server does not take this flag: change engine.args",
    ),
    Failure(
        pattern=r"No module named",
        advice="the engine's environment is incomplete: run: bakeoff engines install llamacpp",
    ),
    Failure(pattern=r"failed to download", advice="give the model as a file: model.path"),
    Failure(pattern=r"failed to load model", advice=_UNLOADABLE),
    Failure(pattern=r"error loading model|due to model loading error", advice=_UNLOADABLE),
    Failure(
        pattern=r"due to HTTP server error|fatal python error|segmentation fault|GGML_ASSERT",
        advice="see the engine's log",
    ),
)


def sample(metrics_body: bytes, slots_body: bytes) -> EngineSample:
    """Running, waiting, counters and the derived KV usage; None for each that is not there.

    `prompt_tokens_total` counts all prompt tokens, those from the cache included, as other
    engines do; llama.cpp's own counter leaves them out.
    """
    metrics = Metrics(metrics_body)
    computed = metrics.total("llamacpp:prompt_tokens_total")
    cached = metrics.total("llamacpp:prompt_tokens_cached_total")
    usage = kv_usage_ratio(slots_body)
    return EngineSample(
        running=metrics.total("llamacpp:requests_processing"),
        waiting=metrics.total("llamacpp:requests_deferred"),
        prompt_tokens_total=None if computed is None else computed + (cached or 0),
        prefix_cached_tokens_total=cached,
        generation_tokens_total=metrics.total("llamacpp:tokens_predicted_total"),
        draft_tokens_total=metrics.total("llamacpp:spec_decode_num_draft_tokens_total"),
        accepted_tokens_total=metrics.total("llamacpp:spec_decode_num_accepted_tokens_total"),
        kv_usage_ratio=usage,
        kv_provenance=Provenance.NOT_EXPOSED if usage is None else Provenance.DERIVED,
    )


def kv_usage_ratio(slots_body: bytes) -> float | None:
    """Tokens held by requests in progress over the context of all slots, 0..1.

    An idle slot keeps its last sequence as a cache: that is not in use. A slot that has never
    worked has no `n_prompt_tokens`. In a server that shares one pool (only one that was started
    by others) each slot names the whole pool, and the ratio reads low by the number of slots.
    """
    slots = json_value(slots_body)
    if not isinstance(slots, list) or not slots or not all(isinstance(s, dict) for s in slots):
        return None
    context = sum(_count(slot.get("n_ctx")) or 0 for slot in slots)
    held = [_count(slot.get("n_prompt_tokens")) for slot in slots if slot.get("is_processing")]
    known = [tokens for tokens in held if tokens is not None]
    if context <= 0 or len(known) != len(held):
        return None
    return min(1.0, sum(known) / context)


def identity(props_body: bytes) -> EngineIdentity:
    """Build, model, slots and context as the server reports them."""
    props = json_value(props_body)
    if not isinstance(props, dict):
        return EngineIdentity()
    settings = props.get("default_generation_settings")
    per_slot = _count(settings.get("n_ctx")) if isinstance(settings, dict) else None
    slots = _count(props.get("total_slots"))
    return EngineIdentity(
        version=_name(props.get("build_info")),
        model=_name(props.get("model_alias")) or _name(props.get("model_path")),
        max_model_len_tokens=per_slot,
        max_running=slots,
        kv_capacity_tokens=per_slot * slots if per_slot and slots else None,
    )


def log_facts(log: str) -> LogFacts:
    """Context, and what the server says of its start; None for each line that is not there.

    `load_s` ends where the server is ready: context and warm-up are in it. The sizes of weights
    and KV cache are written at verbosity 4 and above, a draft model's among them.
    """
    began, ended = _seconds(_LOADING, log), _seconds(_LOADED, log)
    return LogFacts(
        load_s=None if began is None or ended is None or ended < began else ended - began,
        weights_bytes=_buffer_bytes(_WEIGHTS, log),
        kv_bytes=_buffer_bytes(_KV, log),
        kv_capacity_tokens=_context_tokens(log),
    )


def _seconds(line: re.Pattern[str], log: str) -> float | None:
    """When the first such line was written, on the log's own clock."""
    found = line.search(log)
    if found is None:
        return None
    minutes, seconds, milli, micro = map(int, found.groups())
    return minutes * 60 + seconds + milli * 1e-3 + micro * 1e-6


def _buffer_bytes(line: re.Pattern[str], log: str) -> int | None:
    """The sum over all devices; MiB with two decimals, so exact to 5 kB a device."""
    sizes = [float(size) for size in line.findall(log)]
    return round(sum(sizes) * 2**20) if sizes else None


def _context_tokens(log: str) -> int | None:
    """Tokens of all slots; with one shared pool each slot names the whole of it."""
    if found := _SLOTS.search(log):
        slots, per_slot = int(found[1]), int(found[2])
        return per_slot if found[3] == "true" else slots * per_slot
    found = _CONTEXT.search(log)
    return int(found[1]) if found else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
