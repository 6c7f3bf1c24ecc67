"""What does reading engine and machine beside a load cost? Pairs of loads with it and without.

An emulated engine runs on one core, the load client and the telemetry share another, as they do
in a run. More tokens are due than the client can take, so that every bit of CPU that telemetry
takes is missing in tokens/s: the worst case. The order within pairs alternates. The interval is
Student's over the logarithms of the pairs' ratios.

    python benchmarks/bench_telemetry.py --pairs 12
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_server import allow_sockets

from adapters.metrics import known_sample
from harness.analysis.intervals import estimate_mean
from harness.calibrate.cores import Cores, choose_cores, pinned
from harness.config import EngineConf, LaunchMode, ModelConf
from harness.engine.host_meter import tree_of
from harness.engine.probe import Endpoint
from harness.engine.telemetry import INTERVAL_S, Telemetry
from harness.load.driver import LoadProcess
from harness.load.journal import Kind
from harness.registry import open_adapter
from harness.testing.emulated import Emulated, emulated
from harness.testing.played import closed, read_played, write_job
from harness.types import Estimate

_CPU_LIMIT = 0.01  # of one core
_RATE_LIMIT = 0.99  # tokens/s with over without
_USERS = 32
_TOKENS = 200
_PATH = "/v1/completions"
_BODY = b'{"model": "x", "prompt": "a", "stream": true, "ignore_eos": true, "max_tokens": %d}'
_ENGINE = ("--slots", str(_USERS), "--step-ms", "0.2", "--step-per-sequence-ms", "0")
_SCRAPE = Path(__file__).parents[1] / "tests" / "data" / "wire" / "vllm-0.32.0-metrics.http"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load as it was played. `cpu_ratio`: of one core, by the telemetry; None: without it."""

    tokens_per_s: float
    cpu_ratio: float | None
    samples: int = 0


class _Tree:
    """In place of an engine's process: what telemetry asks of one."""

    def __init__(self, pid: int) -> None:
        self.tree_pids = lambda: tree_of(pid)


def play(engine: Emulated, requests: int, *, has_telemetry: bool) -> Load:
    """Play a closed load in a load process of its own; RuntimeError if a request failed."""
    port = int(engine.base_url.rpartition(":")[2])
    with tempfile.TemporaryDirectory() as folder, LoadProcess() as process:
        written = write_job(
            Path(folder),
            port,
            [_PATH] * requests,
            [closed("load", 0, requests, _USERS)],
            bodies={_PATH: _BODY % _TOKENS},
            request_timeout_s=60.0,
        )
        adapter = open_adapter(EngineConf(name="openai"), ModelConf(name="x"), LaunchMode.ATTACH)
        telemetry = Telemetry(
            adapter, Endpoint(engine.base_url), _Tree(engine.process.pid), zero_s=time.monotonic()
        )
        process.open(written.job, written.folder / "job.json")
        if has_telemetry:
            telemetry.watch_client(process.pid)
            telemetry.start()
        process.play(
            written.levels,
            written.folder / "levels.json",
            on_event=lambda _: None,
            should_abort=lambda: False,
        )
        samples, _ = telemetry.stop()
        process.close()
        played = read_played(written)
    ends = played.of(Kind.END)
    bad = [end.payload for end in ends if end.payload != b"complete"]
    if bad or len(ends) != requests:
        raise RuntimeError(f"{len(bad)} of {requests} requests failed, the first by {bad[:1]}")
    span_s = max(end.t_s for end in ends) - min(due.t_s for due in played.of(Kind.DUE))
    return Load(
        tokens_per_s=requests * _TOKENS / span_s,
        cpu_ratio=telemetry.facts()["cpu_ratio"] if has_telemetry else None,
        samples=len(samples),
    )


def measure(pairs: int, requests: int, cores: Cores) -> list[tuple[Load, Load]]:
    """(with telemetry, without) for each pair, after a load that is not counted."""
    found = []
    with pinned(cores.server), emulated(*_ENGINE) as engine, pinned(cores.client):
        play(engine, requests // 4, has_telemetry=True)
        for number in range(pairs):
            order = (True, False) if number % 2 else (False, True)
            loads = {on: play(engine, requests, has_telemetry=on) for on in order}
            found.append((loads[True], loads[False]))
    return found


def ratio_of(pairs: Sequence[tuple[Load, Load]]) -> Estimate:
    """Geometric mean of the ratios with its 95 % interval."""
    logs = estimate_mean([math.log(on.tokens_per_s / off.tokens_per_s) for on, off in pairs])
    ends = (logs.value, logs.ci_low, logs.ci_high)
    value, low, high = (None if end is None else math.exp(end) for end in ends)
    return Estimate(value=value, ci_low=low, ci_high=high, n=len(pairs))


def scrape_cpu_ratio(repeats: int = 50) -> float:
    """Of one core: parsing a metrics page of vLLM 0.32.0 at telemetry's interval."""
    body = _SCRAPE.read_bytes()
    begin_s = time.thread_time()
    for _ in range(repeats):
        known_sample(body)
    return (time.thread_time() - begin_s) / repeats / INTERVAL_S


def main() -> int:
    """Print a row a pair and both figures; 1 if one is shown to be beyond its limit."""
    parser = argparse.ArgumentParser(description="What telemetry costs.")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--requests", type=int, default=2000, help=f"of {_TOKENS} tokens, a load")
    args = parser.parse_args()
    allow_sockets()
    pairs = measure(args.pairs, args.requests, choose_cores(None, None))
    print("pair   tokens/s with   without    ratio   CPU of a core   scrapes")
    for number, (on, off) in enumerate(pairs, 1):
        print(
            f"{number:4d}  {on.tokens_per_s:14.0f} {off.tokens_per_s:9.0f}"
            f"  {on.tokens_per_s / off.tokens_per_s:7.4f}"
            f"  {on.cpu_ratio:14.2%}  {on.samples:8d}"
        )
    cpu = max(on.cpu_ratio or 0.0 for on, _ in pairs)
    print(f"CPU: at most {cpu:.2%} of a core in any load; {_CPU_LIMIT:.0%} is allowed")
    print(f"     a metrics page of vLLM (53 kB) would take {scrape_cpu_ratio():.2%} to parse")
    rate = ratio_of(pairs)
    low, high = rate.ci_low or 0.0, rate.ci_high or math.inf
    says = "kept" if low >= _RATE_LIMIT else "missed" if high < _RATE_LIMIT else "not decided"
    print(f"tokens/s: {rate.value:.4f} of those without (95 %: {low:.4f} to {high:.4f}); ", end="")
    print(f"{_RATE_LIMIT} is asked: {says}")
    return int(cpu > _CPU_LIMIT or says == "missed")


if __name__ == "__main__":
    sys.exit(main())
