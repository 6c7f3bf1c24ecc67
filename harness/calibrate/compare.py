"""A run of our client beside the log of the server it ran against: how far off was the client?"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from harness.calibrate.point import Load, Point
from harness.calibrate.server.log import WrittenLog, order_statistic
from harness.errors import InvalidRunError
from harness.store import StoredRun
from harness.types import Clock, Phase

_P99 = 0.99
_US_PER_S = 1e6


def compare(
    rows: Sequence[Mapping[str, Any]],
    log: WrittenLog,
    load: Load,
    *,
    cpu_us_per_token: float | None = None,
) -> Point:
    """Match measured requests with the log by index.

    `rows`: requests.parquet as dicts. A request that failed, or has no token, or that the server
    never saw, counts as failed; its tokens are missing in `taken_ratio`. InvalidRunError if
    nothing can be matched.
    """
    row_of = {index: row for row, index in enumerate(log.columns["index"])}
    measured = [row for row in rows if row["phase"] == Phase.MEASURE]
    good = [r for r in measured if r["chunk_s"] and r["error"] is None and r["index"] in row_of]
    if not good:
        raise InvalidRunError(
            f"none of {len(measured)} requests of {load.streams} streams came through; "
            "the client cannot be calibrated with this load"
        )
    due, sent = log.token_times()
    matched = [row_of[r["index"]] for r in good]
    arrivals = [log.columns["arrival_s"][row] for row in matched]
    client_ttfts = [r["chunk_s"][0] - r["sent_s"] for r in good]
    server_ttfts = [sent[row][0] - at for row, at in zip(matched, arrivals, strict=True)]
    pairs = zip(client_ttfts, server_ttfts, strict=True)
    span_s = max(due[row][-1] for row in matched) - min(arrivals)
    return Point(
        streams=load.streams,
        tokens_per_s=load.tokens_per_s,
        offered_tokens_per_s=sum(len(due[row]) for row in matched) / span_s,
        requests=len(measured),
        failed=len(measured) - len(good),
        ttft_error_p99_s=_p99(client_ttfts) - _p99(server_ttfts),
        gap_error_p99_s=_p99(_gaps(r["chunk_s"] for r in good))
        - _p99(_gaps(sent[row] for row in matched)),
        ttft_worst_error_s=max(abs(c - s) for c, s in pairs),
        taken_ratio=sum(len(r["chunk_s"]) for r in good) / (len(measured) * load.tokens),
        merged_ratio=sum(r["merged_reads"] for r in good) / max(sum(r["reads"] for r in good), 1),
        kernel_ratio=sum(r["clock"] == Clock.KERNEL for r in good) / len(good),
        cpu_us_per_token=cpu_us_per_token,
        server_late_p99_s=log.summary["late_p99_s"],
    )


def cpu_us_per_token(run: StoredRun, rows: Sequence[Mapping[str, Any]]) -> float | None:
    """CPU time of the load client for each token chunk, in microseconds; None if not known.

    By what the client says of itself level by level; else by the samples of the host, which
    count its start as well.
    """
    levels = {level.index: level.client for level in run.info.levels}
    own = {i: c.cpu_s for i, c in levels.items() if c is not None and c.cpu_s is not None}
    if own:
        tokens = sum(len(row["chunk_s"]) for row in rows if row["level"] in own)
        return sum(own.values()) / tokens * _US_PER_S if tokens else None
    samples = run.host_samples().to_pylist()
    parts = [
        b["client_cpu_ratio"] * (b["t_s"] - a["t_s"])
        for a, b in pairwise(samples)
        if b["client_cpu_ratio"] is not None
    ]
    tokens = sum(len(row["chunk_s"]) for row in rows)
    return sum(parts) / tokens * _US_PER_S if parts and tokens else None


def _gaps(times: Any) -> list[float]:
    return [b - a for one in times for a, b in pairwise(one)]


def _p99(values: Sequence[float]) -> float:
    return order_statistic(values, _P99)
