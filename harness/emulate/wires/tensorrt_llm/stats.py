"""One step of the timing model as an iteration of TensorRT-LLM's statistics.

Names: cpp/tensorrt_llm/executor/jsonSerialization, TensorRT-LLM 1.2. What the model has no figure
for is left out.
"""

from datetime import UTC, datetime

from harness.config import EmulateConf
from harness.emulate.model.figures import StepFigures


def used_blocks(conf: EmulateConf, ratio: float) -> int:
    """Blocks of the KV cache that are held."""
    return round(ratio * conf.kv_blocks)


def iteration(conf: EmulateConf, step: StepFigures, since_s: float) -> dict[str, object]:
    """The JSON object of one step; `since_s`: wall time of virtual time 0."""
    used = used_blocks(conf, step.kv_usage_ratio)
    at = datetime.fromtimestamp(since_s + step.end_s, UTC)
    return {
        "timestamp": at.strftime("%m-%d-%Y %H:%M:%S.%f"),
        "iter": step.number,
        "iterLatencyMS": step.took_s * 1e3,
        "numNewActiveRequests": step.admitted,
        "numActiveRequests": step.running,
        "numQueuedRequests": step.waiting,
        "numCompletedRequests": step.completed,
        "maxNumActiveRequests": conf.slots_played,
        "gpuMemUsage": conf.memory_bytes,
        "kvCacheStats": {
            "maxNumBlocks": conf.kv_blocks,
            "freeNumBlocks": conf.kv_blocks - used,
            "usedNumBlocks": used,
            "tokensPerBlock": conf.block_tokens,
        },
        "inflightBatchingStats": {
            "numScheduledRequests": step.prefilling + step.decoding,
            "numContextRequests": step.prefilling,
            "numGenRequests": step.decoding,
            "numCtxTokens": step.prefill_tokens,
        },
    }
