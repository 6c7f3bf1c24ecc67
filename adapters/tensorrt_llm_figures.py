"""What TensorRT-LLM says of itself: iteration statistics, Prometheus text, log, failures.

Sources: TensorRT-LLM 1.2 and 1.3 pre-releases, serve/openai_server.py, metrics/collector.py,
batch_manager/kvCacheManager.cpp, executor/; not run here.
"""

import math
import re
from typing import Any

from adapters.diagnosis import Failure
from adapters.failures import json_value
from adapters.metrics import Metrics
from harness.types import EngineSample, LogFacts, Provenance

LOG_PREFIX = r"(?:\[[\d/:-]+\] )?(?:\[TRT-LLM\] |\[TensorRT-LLM\])?\[\w+\] ?"
_GIB = 2**30
_SMALLER = (
    "lower engine.max_running, engine.max_model_len or engine.memory_fraction, use more GPUs "
    "(engine.tp), or take a smaller model"
)
_LOG = "see the first error in the engine's log"

FAILURES = (
    Failure(
        pattern=r"No GPU devices found on the node|no CUDA-capable device is detected",
        advice="the engine sees no GPU: check nvidia-smi, engine.gpus and, with launch=docker, the "
        "NVIDIA container toolkit",
    ),
    Failure(
        pattern=r"Failed to bind socket to|(address|Socket '[^']*') already in use",
        advice="the port is in use: leave launch.port=null for a free one, or end what holds it",
    ),
    Failure(
        pattern=r"Executor creation failed due to insufficient GPU memory",
        advice=f"not enough GPU memory: {_SMALLER}",
    ),
    Failure(
        pattern=r"The following component could not be created: KV cache",
        advice=f"no room for the KV cache beside the weights: {_SMALLER}",
    ),
    Failure(
        pattern=r"The following component could not be created",
        advice=f"not enough GPU memory for this component: {_SMALLER}",
    ),
    Failure(
        pattern=r"torch\.(cuda\.)?OutOfMemoryError|CUDA out of memory|cudaErrorMemoryAllocation",
        advice=f"out of GPU memory: {_SMALLER}",
    ),
    Failure(
        pattern=r"No such option|Got unexpected extra argument|Invalid value for",
        advice="the server does not take this flag: change engine.args",
    ),
    Failure(
        pattern=r"validation errors? for \w*LlmArgs|Extra inputs are not permitted",
        advice="the engine does not know this key of its configuration: change engine.args",
    ),
    Failure(
        pattern=r"No module named",
        advice="the engine's environment is incomplete: run: bakeoff engines install tensorrt_llm",
    ),
    Failure(
        pattern=r"failed to load all models",
        advice="a model of the repository cannot be loaded: see the engine's log above this line",
    ),
    Failure(pattern=r"CppExecutorError", advice=f"the engine broke while it served: {_LOG}"),
    Failure(pattern=r"Failed to initialize executor on rank \d+", advice=_LOG),
    Failure(pattern=r"Executor worker returned error", advice=_LOG),
)

_RUNNING = ("trtllm_num_requests_running", "num_requests_running")
_WAITING = ("trtllm_num_requests_waiting", "num_requests_waiting")
_KV_USAGE = ("trtllm_kv_cache_utilization", "kv_cache_utilization")
_MAX_BLOCKS = ("trtllm_kv_cache_max_blocks", "kv_cache_max_blocks")
_BLOCK_TOKENS = ("trtllm_kv_cache_tokens_per_block", "kv_cache_tokens_per_block")
_PROMPT = ("trtllm_prompt_tokens_total", "prompt_tokens_total")
_GENERATION = ("trtllm_generation_tokens_total", "generation_tokens_total")
_CACHED = ("trtllm_prompt_cached_tokens_total", "prompt_cached_tokens_total")
_KV_ALLOCATED = re.compile(r"Allocated ([\d.]+) GiB for max tokens in paged KV cache \((\d+)\)")


def iteration_sample(body: bytes) -> EngineSample:
    """The newest iteration of the JSON list; all None for `[]`, which says: nothing since.

    Reading the list empties it. What it counts is of one iteration each, so there are no totals.
    """
    now = _newest(body)
    used, most = (_count(_kv(now).get(key)) for key in ("usedNumBlocks", "maxNumBlocks"))
    usage = used / most if used is not None and most else None
    return EngineSample(
        running=_count(now.get("numActiveRequests")),
        waiting=_count(now.get("numQueuedRequests")),
        kv_usage_ratio=usage,
        kv_provenance=Provenance.NOT_EXPOSED if usage is None else Provenance.DERIVED,
    )


def prometheus_sample(body: bytes) -> EngineSample:
    """From `/prometheus/metrics`: newer builds prefix every name with `trtllm_`."""
    metrics = Metrics(body)
    usage = metrics.mean(*_KV_USAGE)
    return EngineSample(
        running=metrics.total(*_RUNNING),
        waiting=metrics.total(*_WAITING),
        prompt_tokens_total=metrics.total(*_PROMPT),
        generation_tokens_total=metrics.total(*_GENERATION),
        prefix_cached_tokens_total=metrics.total(*_CACHED),
        kv_usage_ratio=usage,
        kv_provenance=Provenance.NOT_EXPOSED if usage is None else Provenance.MEASURED,
    )


def kv_capacity_tokens(iterations: bytes, prometheus: bytes) -> int | None:
    """What the KV cache holds: its blocks times the tokens of one."""
    kv, metrics = _kv(_newest(iterations)), Metrics(prometheus)
    blocks = _count(kv.get("maxNumBlocks")) or metrics.mean(*_MAX_BLOCKS)
    tokens = _count(kv.get("tokensPerBlock")) or metrics.mean(*_BLOCK_TOKENS)
    return int(blocks * tokens) if blocks and tokens else None


def version(body: bytes) -> str | None:
    """From `/version`."""
    value = json_value(body)
    said = value.get("version") if isinstance(value, dict) else None
    return said if isinstance(said, str) else None


def log_facts(log: str) -> LogFacts:
    """The size of the KV cache: the last of these lines, since a first small one is for a trial."""
    found = _KV_ALLOCATED.findall(log)
    if not found:
        return LogFacts()
    gib, tokens = found[-1]
    try:
        size = int(float(gib) * _GIB)
    except ValueError:  # 1.2.3 is no number
        return LogFacts(kv_capacity_tokens=int(tokens))
    return LogFacts(kv_bytes=size, kv_capacity_tokens=int(tokens))


def _newest(body: bytes) -> dict[str, Any]:
    value = json_value(body)
    last = value[-1] if isinstance(value, list) and value else None
    return last if isinstance(last, dict) else {}


def _kv(iteration: dict[str, Any]) -> dict[str, Any]:
    kv = iteration.get("kvCacheStats")
    return kv if isinstance(kv, dict) else {}


def _count(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None
