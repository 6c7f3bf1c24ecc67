"""The emulator's `/metrics`, in the names and labels of vLLM 0.32 (as captured).

Of its histograms those are here whose meaning the timing model has, with their last bucket only.
"""

from collections.abc import Iterator, Mapping

import msgspec

from harness.config import EmulateConf
from harness.emulate.wires.wire import EngineState

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_REASONS = ("stop", "length", "abort", "error", "repetition")


def metrics_text(conf: EmulateConf, model: str, state: EngineState, created_s: int) -> bytes:
    """One scrape. `created_s`: the Unix time of the start, which counters carry beside them."""
    return "\n".join(_lines(conf, model, state, created_s)).encode() + b"\n"


def _lines(conf: EmulateConf, model: str, state: EngineState, created_s: int) -> Iterator[str]:
    yield from _gauge("process_resident_memory_bytes", "", state.memory_bytes())
    quoted = msgspec.json.encode(model).decode()
    name = f'engine="0",model_name={quoted}'
    gauges, counters = state.gauges(), state.counters
    yield from _gauge("vllm:num_requests_running", name, gauges.running)
    yield from _gauge("vllm:num_requests_waiting", name, gauges.waiting)
    reasons = {f'{name},reason="capacity"': gauges.waiting, f'{name},reason="deferred"': 0}
    yield from _family("vllm:num_requests_waiting_by_reason", "gauge", reasons)
    yield from _gauge("vllm:kv_cache_usage_perc", name, gauges.kv_usage_ratio)
    computed = counters.prompt - counters.prefix_hits
    sources = {"local_compute": max(0, computed), "local_cache_hit": counters.prefix_hits}
    totals: Mapping[str, Mapping[str, float]] = {
        "prefix_cache_queries": {name: counters.prefix_queries},
        "prefix_cache_hits": {name: counters.prefix_hits},
        "num_preemptions": {name: counters.preemptions},
        "prompt_tokens": {name: counters.prompt},
        "prompt_tokens_by_source": {
            f'{name},source="{source}"': value for source, value in sources.items()
        },
        "prompt_tokens_cached": {name: counters.prefix_hits},
        "generation_tokens": {name: counters.generation},
        "request_success": {
            f'engine="0",finished_reason="{reason}",model_name={quoted}': state.finished.get(
                reason, 0
            )
            for reason in _REASONS
        },
    }
    for key, series in totals.items():
        yield from _family(f"vllm:{key}_total", "counter", series)
        yield from _family(f"vllm:{key}_created", "gauge", dict.fromkeys(series, created_s))
    for key, count, sum_s in (
        ("time_to_first_token_seconds", counters.begun, counters.ttft_s),
        ("e2e_request_latency_seconds", counters.complete, counters.e2e_s),
    ):
        yield from _histogram(f"vllm:{key}", name, count, sum_s / conf.speed)
        yield from _gauge(f"vllm:{key}_created", name, created_s)
    yield from _gauge("vllm:cache_config_info", _cache(conf), 1.0)
    late_s = state.late_s()
    if late_s is not None:
        yield from _gauge("bakeoff_emulator_late_p99_seconds", "", late_s)


def _cache(conf: EmulateConf) -> str:
    labels = {
        "block_size": conf.block_tokens,
        "cache_dtype": "auto",
        "enable_prefix_caching": bool(conf.prefix_cache),
        "engine": 0,
        "kv_cache_max_concurrency": conf.kv_tokens / conf.longest_tokens,
        "kv_cache_size_tokens": conf.kv_tokens,
        "num_gpu_blocks": conf.kv_blocks,
        "num_gpu_blocks_override": None,
    }
    return ",".join(f'{key}="{value}"' for key, value in labels.items())


def _gauge(name: str, labels: str, value: float) -> Iterator[str]:
    return _family(name, "gauge", {labels: value})


def _histogram(name: str, labels: str, count: int, total: float) -> Iterator[str]:
    yield f"# TYPE {name} histogram"
    yield f'{name}_bucket{{{labels},le="+Inf"}} {float(count)}'
    yield f"{name}_count{{{labels}}} {float(count)}"
    yield f"{name}_sum{{{labels}}} {float(total)}"


def _family(name: str, kind: str, series: Mapping[str, float]) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    for labels, value in series.items():
        yield f"{name}{{{labels}}} {float(value)}" if labels else f"{name} {float(value)}"
