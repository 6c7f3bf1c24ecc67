"""The columns of the store's three tables, and what came with which version.

Format history (`schema_version`):
1: first.
2: requests.parquet has group to accepted_tokens, engine.parquet the counts of speculation, levels
   the client's facts; what a run of version 1 lacks is read as missing.
3: host.parquet has gpu_energy_j to gpu_each_memory_bytes; run.json has how the start went and what
   the engine's log told.
"""

from collections.abc import Mapping
from dataclasses import fields

import pyarrow as pa

from harness.types import EngineSample, HostSample

SCHEMA_VERSION = 3

RECORD_SCHEMA = pa.schema(
    [
        ("request_id", pa.string()),
        ("index", pa.int64()),
        ("level", pa.int32()),
        ("block", pa.int32()),
        ("phase", pa.string()),
        ("due_s", pa.float64()),
        ("connect_s", pa.float64()),
        ("sent_s", pa.float64()),
        ("chunk_s", pa.list_(pa.float64())),
        ("chunk_tokens", pa.list_(pa.int32())),
        ("stream_end_s", pa.float64()),
        ("prompt_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("tokens_source", pa.string()),
        ("planned_input_tokens", pa.int64()),
        ("planned_output_tokens", pa.int64()),
        ("clock", pa.string()),
        ("headers_s", pa.float64()),
        ("cached_tokens", pa.int64()),
        ("reasoning_tokens", pa.int64()),
        ("finish_reason", pa.string()),
        ("error", pa.string()),
        ("error_message", pa.string()),
        ("http_status", pa.int32()),
        ("censored_s", pa.float64()),
        ("user", pa.int32()),
        ("reads", pa.int32()),
        ("merged_reads", pa.int32()),
        ("late_s", pa.float64()),
        ("text_sha256", pa.string()),
        ("group", pa.string()),
        ("session", pa.int32()),
        ("turn", pa.int32()),
        ("prefix_tokens", pa.int32()),
        ("lora", pa.string()),
        ("worker", pa.int32()),
        ("attempts", pa.int32()),
        ("retry_after_s", pa.float64()),
        ("draft_tokens", pa.int64()),
        ("accepted_tokens", pa.int64()),
    ]
)
ADDED: Mapping[int, frozenset[str]] = {  # columns that came with a version, and not before
    2: frozenset(
        (
            *("group", "session", "turn", "prefix_tokens", "lora", "worker", "attempts"),
            *("retry_after_s", "draft_tokens", "accepted_tokens"),
            *("draft_tokens_total", "accepted_tokens_total"),
        )
    ),
    3: frozenset(
        (
            *("gpu_energy_j", "gpu_sm_clock_mhz", "gpu_temperature_c", "gpu_throttle"),
            *("gpu_ecc_corrected_total", "gpu_ecc_uncorrected_total"),
            *("gpu_each_util_ratio", "gpu_each_memory_bytes"),
        )
    ),
}
ENGINE_SCHEMA = pa.schema(
    [
        (f.name, pa.string() if f.name == "kv_provenance" else pa.float64())
        for f in fields(EngineSample)
    ]
)
_HOST_TYPES = {
    "gpu_throttle": pa.string(),
    "gpu_ecc_corrected_total": pa.int64(),
    "gpu_ecc_uncorrected_total": pa.int64(),
    "gpu_each_util_ratio": pa.list_(pa.float64()),
    "gpu_each_memory_bytes": pa.list_(pa.int64()),
}
HOST_SCHEMA = pa.schema(
    [
        (f.name, _HOST_TYPES.get(f.name, pa.int64() if f.name.endswith("_bytes") else pa.float64()))
        for f in fields(HostSample)
    ]
)
