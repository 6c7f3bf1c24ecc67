"""Are requests sent when they are due? Poisson arrivals at 500 a second, through `bakeoff run`.

The lag of a request is `sent_s - due_s`: what the load process, its timers and new connections
cost. Answers are short, so that it is sending that is measured. The reference server has a core of
its own.

    python benchmarks/bench_rate.py --rate 500 --seconds 20
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_server import allow_sockets

from harness.calibrate.cores import Cores, choose_cores, pinned
from harness.calibrate.server.log import order_statistic
from harness.calibrate.server.running import running_server
from harness.errors import InvalidRunError
from harness.store import StoredRun, open_runs
from harness.types import Phase

_LIMIT_S = 2e-3
_TOKENS = 8
_RATIOS = (0.5, 0.9, 0.99, 1.0)
_BAKEOFF = str(Path(sys.executable).with_name("bakeoff"))


def play(store: Path, url: str, *, rate_rps: float, duration_s: float) -> StoredRun:
    """Play the load by the command line; RuntimeError with its output if nothing was stored."""
    argv = [_BAKEOFF, "run", "engine=openai", "launch=attach", f'launch.base_url="{url}"']
    argv += ["model.served_name=stub", "scenario=fixed", "scenario.input_tokens=16"]
    argv += [f"scenario.output_tokens={_TOKENS}", "load=poisson", f"load.rate_rps={rate_rps:g}"]
    argv += [f"load.duration_s={duration_s:g}", "load.force=true", f"store={store}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode not in {0, InvalidRunError.exit_code}:
        raise RuntimeError(f"code {done.returncode}: {' '.join(argv)}\n{done.stdout}{done.stderr}")
    return open_runs(store).runs[0]


def measured_lags_s(*, rate_rps: float, duration_s: float, cores: Cores) -> list[float]:
    """The lag of every request of the level, failed ones left out."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--cpu", str(cores.server), "--ttft-ms", "20", "--tokens-per-s", "200"]
        path = Path(folder) / "store"
        with running_server(Path(folder) / "log", *options) as url, pinned(cores.client):
            run = play(path, url, rate_rps=rate_rps, duration_s=duration_s)
        rows = run.requests().to_pylist()
    good = [row for row in rows if row["phase"] == Phase.MEASURE and row["error"] is None]
    return [row["sent_s"] - row["due_s"] for row in good]


def main() -> int:
    """Print the lag's percentiles; 1 if the P99 is above the limit or requests are missing."""
    parser = argparse.ArgumentParser(description="How punctually requests are sent.")
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    allow_sockets()
    lags_s = measured_lags_s(
        rate_rps=args.rate, duration_s=args.seconds, cores=choose_cores(None, None)
    )
    asked = args.rate * args.seconds
    print(f"{len(lags_s)} requests sent and answered, {asked:.0f} are the mean of such a load")
    for ratio in _RATIOS:
        print(f"  lag P{ratio * 100:<4g} {order_statistic(lags_s, ratio) * 1e3:8.3f} ms")
    p99_s = order_statistic(lags_s, 0.99)
    print(f"P99 {p99_s * 1e3:.3f} ms; at most {_LIMIT_S * 1e3:g} ms are allowed")
    has_all = len(lags_s) > 0.9 * asked
    return int(not has_all or p99_s > _LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
