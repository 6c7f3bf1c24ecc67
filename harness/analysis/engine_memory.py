"""Where an engine's memory goes: weights, KV pool and peak, each with where the figure is from.

What the engine says of itself comes first, then what follows from the model's files; what neither
tells is not exposed, and never 0.
"""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from harness.analysis.facts import fact, kv_capacity_tokens, machine_of, setting
from harness.analysis.model import Amount, Candidate, EngineMemory
from harness.store import StoredRun
from harness.types import Provenance, RunInfo
from harness.units import number

_AUTO = "auto"
_TWO_BYTES = 2.0
# Bytes of a cached element by the engine's word for it.
# q8_0, q4_0 and the like: 32 elements with a 16-bit scale (ggml's block formats).
_ELEMENT_BYTES = {
    **dict.fromkeys((_AUTO, "f16", "bf16", "float16", "bfloat16", "half"), _TWO_BYTES),
    **dict.fromkeys(("f32", "float32", "float"), 4.0),
    **dict.fromkeys(("fp8", "int8"), 1.0),
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}


def engine_memory(candidate: Candidate, runs: Sequence[StoredRun]) -> EngineMemory:
    """The memory of one candidate over its runs, one at least: the highest peak of any of them.

    StoreFormatError if a table cannot be read.
    """
    infos = [run.info for run in runs]
    hosts = [run.host_samples() for run in runs]
    has_gpu = any(machine_of(info).gpus for info in infos)
    gpu_peak = _peak(hosts, "gpu_memory_bytes", "in use on the watched GPUs")
    return EngineMemory(
        candidate=candidate,
        run_ids=tuple(info.run_id for info in infos),
        weights=_first([_weights(info) for info in infos]),
        kv_pool=_first([_kv_pool(info) for info in infos]),
        kv_capacity_tokens=next((c for info in infos if (c := kv_capacity_tokens(info))), None),
        kv_metric=_kv_metric([run.engine_samples() for run in runs]),
        gpu_peak=gpu_peak if has_gpu or gpu_peak.value_bytes is not None else Amount("no GPU"),
        rss_peak=_peak(hosts, "engine_rss_bytes", "resident memory of its processes"),
    )


def _weights(info: RunInfo) -> Amount:
    if info.log.weights_bytes is not None:
        return Amount("its log", info.log.weights_bytes, Provenance.MEASURED)
    tensors, size = fact(info, "model.weights_bytes"), fact(info, "model.bytes")
    if tensors or size:
        source = "the model's tensors" if tensors else "the model's file"
        return Amount(source, int(tensors or size), Provenance.DERIVED)
    return Amount()


def _kv_pool(info: RunInfo) -> Amount:
    if info.log.kv_bytes is not None:
        return Amount("its log", info.log.kv_bytes, Provenance.MEASURED)
    capacity, each = kv_capacity_tokens(info), kv_bytes_per_token(info)
    if capacity is None or each is None:
        return Amount()
    source = f"{capacity:,} tokens x {number(each)} B"
    return Amount(source, round(capacity * each), Provenance.DERIVED)


def kv_bytes_per_token(info: RunInfo) -> float | None:
    """Of the model's shape and the type of a cached element; None if either is unknown.

    The type is `engine.kv_dtype`, else that which the engine computes in: `engine.dtype`, else
    the one of the weights; 2 bytes where those are quantised.
    """
    at_two = fact(info, "model.kv_bytes_per_token")
    words = [str(setting(info, f"engine.{key}", _AUTO)).lower() for key in ("kv_dtype", "dtype")]
    form = str(fact(info, "model.format") or "").lower().rpartition(" ")[2]
    words += [form] if form in _ELEMENT_BYTES else []
    word = next((word for word in words if word != _AUTO), _AUTO)
    element = _ELEMENT_BYTES.get(re.sub(r"^(fp8|int8)[_-].*", r"\1", word))
    return None if at_two is None or element is None else float(at_two) * element / _TWO_BYTES


def _peak(hosts: Sequence[pa.Table], column: str, source: str) -> Amount:
    peaks = [pc.max(host[column]).as_py() for host in hosts]
    known = [peak for peak in peaks if peak is not None]
    return Amount(source, max(known), Provenance.MEASURED) if known else Amount()


def _kv_metric(samples: Sequence[pa.Table]) -> Provenance:
    """The best that any scrape had: measured before derived."""
    seen = {value for table in samples for value in table["kv_provenance"].unique().to_pylist()}
    order = (Provenance.MEASURED, Provenance.DERIVED)
    return next((kind for kind in order if kind.value in seen), Provenance.NOT_EXPOSED)


def _first(found: Sequence[Amount]) -> Amount:
    return next((one for one in found if one.value_bytes is not None), found[0])
