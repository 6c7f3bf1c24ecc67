"""The metrics of TensorRT-LLM's Triton backend.

Names: TensorRT-LLM 1.2, triton_backend/inflight_batcher_llm/src/custom_metrics_reporter.
"""

from collections.abc import Iterator, Mapping

from harness.config import EmulateConf
from harness.emulate.wires.tensorrt_llm.stats import used_blocks
from harness.emulate.wires.wire import EngineState

CONTENT_TYPE = "text/plain; charset=utf-8"


def metrics_text(conf: EmulateConf, state: EngineState) -> bytes:
    """One scrape."""
    return "\n".join(_lines(conf, state)).encode() + b"\n"


def _lines(conf: EmulateConf, state: EngineState) -> Iterator[str]:
    gauges, counters = state.gauges(), state.counters
    used = used_blocks(conf, gauges.kv_usage_ratio)
    requests = {"active": gauges.running, "waiting": gauges.waiting, "max": conf.slots_played}
    yield from _group("nv_trt_llm_request_metrics", "request_type", requests)
    blocks: Mapping[str, float] = {
        "max": conf.kv_blocks,
        "free": conf.kv_blocks - used,
        "used": used,
        "tokens_per": conf.block_tokens,
        "fraction": gauges.kv_usage_ratio,
    }
    yield from _group("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", blocks)
    memory = {"gpu": state.memory_bytes()}
    yield from _group("nv_trt_llm_runtime_memory_metrics", "memory_type", memory)
    general = {"iteration_counter": counters.steps}
    yield from _group("nv_trt_llm_general_metrics", "general_type", general)
    for name, kind, total in (
        ("nv_llm_input_token_len", "total_input_tokens", counters.prompt),
        ("nv_llm_output_token_len", "total_output_tokens", counters.generation),
    ):
        yield f"# TYPE {name} histogram"
        labels = f'model="tensorrt_llm",response_metric_type="{kind}",version="1"'
        yield f"{name}_sum{{{labels}}} {float(total)}"
    late_s = state.late_s()
    if late_s is not None:
        yield "# TYPE bakeoff_emulator_late_p99_seconds gauge"
        yield f"bakeoff_emulator_late_p99_seconds {late_s}"


def _group(name: str, label: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# TYPE {name} gauge"
    for kind, value in values.items():
        yield f'{name}{{{label}="{kind}",model="tensorrt_llm",version="1"}} {float(value)}'
