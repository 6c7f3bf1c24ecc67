"""The emulator's `/metrics`, in the names and labels of vLLM 0.32 (as captured)."""

from collections.abc import Iterator, Mapping

import msgspec

from harness.config import EmulateConf
from harness.emulate.wires.wire import EngineState

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"


def metrics_text(conf: EmulateConf, model: str, state: EngineState) -> bytes:
    """One scrape."""
    return "\n".join(_lines(conf, model, state)).encode() + b"\n"


def _lines(conf: EmulateConf, model: str, state: EngineState) -> Iterator[str]:
    yield from _metric("process_resident_memory_bytes", "gauge", state.memory_bytes(), "")
    name = f'engine="0",model_name={msgspec.json.encode(model).decode()}'
    gauges, counters = state.gauges(), state.counters
    values: Mapping[str, tuple[str, float]] = {
        "num_requests_running": ("gauge", gauges.running),
        "num_requests_waiting": ("gauge", gauges.waiting),
        "kv_cache_usage_perc": ("gauge", gauges.kv_usage_ratio),
        "prefix_cache_queries_total": ("counter", counters.prefix_queries),
        "prefix_cache_hits_total": ("counter", counters.prefix_hits),
        "num_preemptions_total": ("counter", counters.preemptions),
        "prompt_tokens_total": ("counter", counters.prompt),
        "generation_tokens_total": ("counter", counters.generation),
    }
    for key, (kind, value) in values.items():
        yield from _metric(f"vllm:{key}", kind, value, name)
    yield "# TYPE vllm:request_success_total counter"
    for reason in ("stop", "length"):
        labels = f'{name},finished_reason="{reason}"'
        yield f"vllm:request_success_total{{{labels}}} {float(state.finished.get(reason, 0))}"
    cache = (
        f'block_size="{conf.block_tokens}",enable_prefix_caching="{bool(conf.prefix_cache)}",'
        f'engine="0",kv_cache_size_tokens="{conf.kv_tokens}",num_gpu_blocks="{conf.kv_blocks}"'
    )
    yield from _metric("vllm:cache_config_info", "gauge", 1.0, cache)
    late_s = state.late_s()
    if late_s is not None:
        yield from _metric("bakeoff_emulator_late_p99_seconds", "gauge", late_s, "")


def _metric(name: str, kind: str, value: float, labels: str) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    yield f"{name}{{{labels}}} {float(value)}" if labels else f"{name} {float(value)}"
