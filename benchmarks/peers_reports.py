"""What the other tools say of a run, out of the files that they write themselves.

Their names are no guide, so each figure is taken by its formula. TTFT is the same in all: first
piece of the answer minus start of the request. `inter-token` is the gap between two pieces in one
tool and a request's mean, (last - first) / (tokens - 1), in another; `Between` says which.
"""

import csv
import json
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.calibrate.server.log import order_statistic
from harness.store import open_runs
from harness.types import Phase


class Between(StrEnum):
    """What a tool's figure between tokens is a percentile of."""

    GAP = "gap"  # times between pieces, all requests together
    MEAN = "mean"  # each request's (last - first) / (tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A tool's own figures, in seconds. `requests`: those that its percentiles are made of."""

    requests: int
    failed: int
    ttft_p50_s: float
    ttft_p99_s: float
    between: Between
    between_p99_s: float


def read_ours(folder: Path) -> Said:
    """`bakeoff run`: first token minus sent, and gaps between chunks, of requests.parquet."""
    rows = open_runs(folder / "store").runs[0].requests().to_pylist()
    measured = [row for row in rows if row["phase"] == Phase.MEASURE]
    good = [row for row in measured if row["chunk_s"] and row["error"] is None]
    ttft_s = [row["chunk_s"][0] - row["sent_s"] for row in good]
    gap_s = [b - a for row in good for a, b in pairwise(row["chunk_s"])]
    return Said(
        requests=len(good),
        failed=len(measured) - len(good),
        ttft_p50_s=order_statistic(ttft_s, 0.5),
        ttft_p99_s=order_statistic(ttft_s, 0.99),
        between=Between.GAP,
        between_p99_s=order_statistic(gap_s, 0.99),
    )


def _the_one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise FileNotFoundError(f"{len(found)} files {pattern} in {folder}: must be one")
    return found[0]


def _json(folder: Path, pattern: str) -> Any:
    return json.loads(_the_one(folder, pattern).read_bytes())


def read_vllm(folder: Path) -> Said:
    """`vllm bench serve --save-result`. Its `itl` is the gap between chunks."""
    found = _json(folder, "vllm.json")
    return Said(
        requests=found["completed"],
        failed=found["failed"],
        ttft_p50_s=found["p50_ttft_ms"] * 1e-3,
        ttft_p99_s=found["p99_ttft_ms"] * 1e-3,
        between=Between.GAP,
        between_p99_s=found["p99_itl_ms"] * 1e-3,
    )


def read_guidellm(folder: Path) -> Said:
    """`guidellm run --output kind=json`. Its `inter_token_latency` is a request's mean.

    Only requests of its measured window have a TTFT in the statistics.
    """
    metrics = _json(folder, "guidellm.json")["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]
    between = metrics["inter_token_latency_ms"]["successful"]
    totals = metrics["request_totals"]
    return Said(
        requests=ttft["count"],
        failed=totals["errored"] + totals["incomplete"],
        ttft_p50_s=ttft["percentiles"]["p50"] * 1e-3,
        ttft_p99_s=ttft["percentiles"]["p99"] * 1e-3,
        between=Between.MEAN,
        between_p99_s=between["percentiles"]["p99"] * 1e-3,
    )


def _seconds(metric: dict[str, Any], name: str) -> float:
    scale = {"ms": 1e-3, "s": 1.0, "sec": 1.0}[metric["unit"]]
    return float(metric[name]) * scale


def read_aiperf(folder: Path) -> Said:
    """`aiperf profile`, its summary. `inter_chunk_latency` is the gap; `inter_token` the mean.

    ValueError for a cancelled run.
    """
    found = _json(folder, "aiperf/profile_export_aiperf.json")
    if found.get("was_cancelled"):
        raise ValueError("aiperf says that its run was cancelled")
    ttft = found["time_to_first_token"]
    return Said(
        requests=int(found["request_count"]["avg"]),
        failed=int((found.get("error_request_count") or {}).get("avg", 0)),
        ttft_p50_s=_seconds(ttft, "p50"),
        ttft_p99_s=_seconds(ttft, "p99"),
        between=Between.GAP,
        between_p99_s=_seconds(found["inter_chunk_latency"], "p99"),
    )


def read_genai_bench(folder: Path) -> Said:
    """`genai-bench benchmark --metrics-time-unit ms`. It has a request's mean only, as `tpot`.

    Warm-up and failed requests are in the list of requests but not in the statistics: what the
    share for warm-up took away is seen from the sum and the mean.
    """
    found = _json(folder, "genai/*_concurrency_*.json")["aggregated_metrics"]
    ttft, tpot = found["stats"]["ttft"], found["stats"]["tpot"]
    return Said(
        requests=round(ttft["sum"] / ttft["mean"]),
        failed=found["num_error_requests"],
        ttft_p50_s=ttft["p50"] * 1e-3,
        ttft_p99_s=ttft["p99"] * 1e-3,
        between=Between.MEAN,
        between_p99_s=tpot["p99"] * 1e-3,
    )


def read_locust(folder: Path) -> Said:
    """Locust's `--csv` of our `peers_locustfile.py`, which fires TTFT and TPOT as events.

    Locust rounds to two digits before it takes a percentile.
    """
    with _the_one(folder, "locust_stats.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["Type"]: row for row in csv.DictReader(file)}
    ttft, tpot = rows["TTFT"], rows["TPOT"]
    return Said(
        requests=int(ttft["Request Count"]),
        failed=sum(int(row["Failure Count"]) for kind, row in rows.items() if kind),
        ttft_p50_s=float(ttft["50%"]) * 1e-3,
        ttft_p99_s=float(ttft["99%"]) * 1e-3,
        between=Between.MEAN,
        between_p99_s=float(tpot["99%"]) * 1e-3,
    )
