"""The page: offline, true to the Parquet, complete, and readable without anything else."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.analysis.cells import summarise
from harness.analysis.model import Summary
from harness.config import RunConf, SloConf
from harness.report.write import write_report
from harness.store import StoredRun, finish_run, new_run_folder, read_run, write_tables
from harness.types import (
    Clock,
    EngineIdentity,
    EngineSample,
    ErrorClass,
    HostSample,
    Level,
    Outcome,
    Phase,
    Provenance,
    Record,
    RunInfo,
    TokensSource,
)

ENGINES = {"llamacpp": (0.060, 0.011, 4), "vllm": (0.045, 0.012, 24)}  # TTFT, step, slots
LEVELS = ((1, 12), (4, 30), (16, 48))  # users, requests
BLOCKS = 4
TOKENS = 24
PRICE = {"currency": "EUR", "date": "2026-11-30", "source": "invoice"}
SLO = SloConf(name="chat", ttft_s=0.35, tpot_s=0.05, attainment_ratio=0.9)


class Maker:
    """Writes runs of a made-up engine: TTFT grows when users exceed its slots."""

    def __init__(self, sweep: Path, *, price_per_hour: float | None = None) -> None:
        self._sweep = sweep
        self._price = price_per_hour

    def run(self, engine: str, block: int, *, outcome: Outcome = Outcome.OK) -> StoredRun:
        rng = np.random.default_rng([len(engine), block])
        speed = rng.normal(1.0, 0.02)
        records: list[Record] = []
        samples: list[EngineSample] = []
        levels: list[Level] = []
        start = 1.0
        for index, (users, requests) in enumerate(LEVELS if outcome is Outcome.OK else ()):
            rows, end = _level(rng, engine, block, index, users, requests, start, speed)
            records += rows
            samples += _samples(engine, users, start, end)
            levels.append(
                Level(
                    index=index,
                    name=f"users={users}",
                    shape="users",
                    users=users,
                    window_start_s=start,
                    window_end_s=end,
                    drained_s=end,
                    planned=requests,
                )
            )
            start = end + 0.5
        run_id = f"{engine}-b{block}" if outcome is Outcome.OK else f"{engine}-{outcome.value}"
        folder = new_run_folder(self._sweep, run_id)
        host = [
            HostSample(t_s=s.t_s, cpu_total_ratio=0.7, engine_rss_bytes=1 << 30) for s in samples
        ]
        write_tables(folder, records=records, engine=samples, host=host)
        info = _info(run_id, engine, block, tuple(levels), outcome, self._price)
        return read_run(finish_run(folder, info))


def _level(
    rng: np.random.Generator,
    engine: str,
    block: int,
    level: int,
    users: int,
    requests: int,
    start: float,
    speed: float,
) -> tuple[list[Record], float]:
    ttft, step, slots = ENGINES[engine]
    busy = min(users, slots)
    step *= (1 + 0.04 * busy) * speed
    free_at = [start] * users
    rows: list[Record] = []
    for i in range(requests):
        user = int(np.argmin(free_at))
        due = free_at[user]
        queue = max(0.0, users / slots - 1) * TOKENS * step
        first = due + 1e-4 + (ttft * speed + queue) * float(rng.lognormal(0, 0.25))
        gaps = step * rng.lognormal(0, 0.15, TOKENS - 1)
        chunks = (first, *(first + np.cumsum(gaps)).tolist())
        is_failed = engine == "llamacpp" and users == 16 and i == 7 and block == 2
        is_cut = engine == "llamacpp" and users == 16 and i == requests - 1 and block == 3
        free_at[user] = chunks[-1]
        rows.append(
            Record(
                request_id=f"{level}-{i}",
                index=i,
                level=level,
                block=block,
                phase=Phase.WARMUP if i < min(2, users) else Phase.MEASURE,
                due_s=due,
                connect_s=None,
                sent_s=due + 1e-4,
                chunk_s=() if is_failed or is_cut else chunks,
                chunk_tokens=() if is_failed or is_cut else (1,) * TOKENS,
                stream_end_s=None if is_failed or is_cut else chunks[-1] + 1e-4,
                prompt_tokens=None if is_failed else 32,
                output_tokens=None if is_failed or is_cut else TOKENS,
                tokens_source=None if is_failed or is_cut else TokensSource.USAGE,
                planned_input_tokens=32,
                planned_output_tokens=TOKENS,
                clock=Clock.KERNEL,
                error=ErrorClass.HTTP_5XX if is_failed else None,
                http_status=500 if is_failed else 200,
                censored_s=5.0 if is_cut else None,
                user=user,
            )
        )
    return rows, max(free_at)


def _samples(engine: str, users: int, start: float, end: float) -> list[EngineSample]:
    slots = ENGINES[engine][2]
    has_kv = engine == "vllm"
    return [
        EngineSample(
            t_s=float(t),
            running=float(min(users, slots)),
            waiting=float(max(0, users - slots)),
            kv_usage_ratio=min(1.0, users * 0.03) * float(0.5 + (t % 1) / 2) if has_kv else None,
            kv_provenance=Provenance.MEASURED if has_kv else Provenance.NOT_EXPOSED,
        )
        for t in np.arange(start, end, 0.1)
    ]


def _info(
    run_id: str,
    engine: str,
    block: int,
    levels: tuple[Level, ...],
    outcome: Outcome,
    price: float | None,
) -> RunInfo:
    return RunInfo(
        schema_version=1,
        run_id=run_id,
        engine=engine,
        model="smollm2-135m",
        emulated=False,
        outcome=outcome,
        started_at=f"2026-11-{20 + block:02d}T10:00:00Z",
        config=_config(engine, block, price),
        facts={
            "machine": {"cpu_model": "Xeon", "cpu_cores": 2, "gpus": []},
            "model": {"sha256": "ab" * 32},
        },
        plan_hash="cd" * 32,
        content_hash=f"{engine}{block}",
        block=block,
        levels=levels,
        identity=EngineIdentity(version="1.2.3"),
        time_to_ready_s=2.5,
        diagnosis=None if outcome is Outcome.OK else "out of memory while loading the model",
        ended_at=f"2026-11-{20 + block:02d}T10:05:00Z",
    )


def _config(engine: str, block: int, price: float | None) -> dict[str, Any]:
    return {
        "engine": {
            "name": engine,
            "route": "completions",
            "max_running": ENGINES.get(engine, (0, 0, 8))[2],
            "env": {"HF_TOKEN": "hf_do_not_show"},
        },
        "model": {"name": "smollm2-135m"},
        "scenario": {"name": "chat", "input_tokens": 32, "output_tokens": TOKENS},
        "load": {"shape": "levels", "levels": [{"shape": "users", "users": u} for u, _ in LEVELS]},
        "hardware": {"name": "auto", "price": PRICE | {"per_hour": price}},
        "block": block,
    }
