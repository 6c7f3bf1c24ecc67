"""Does our load client tell the truth? Its figures against those of a server with a schedule.

The reference server runs on one core, `bakeoff run` on another, through the command line as a user
would. What the client says (first token - sent, gaps between chunks) is set beside what the server
logged for the same requests (first send - kernel's arrival of the request, gaps between sends).
Percentiles are order statistics of the raw samples.

    python benchmarks/bench_truth.py 16 64 256
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench_server import allow_sockets, running_server
from stream_log import WrittenLog, order_statistic, read_log

from harness.store import StoredRun, open_runs

_LIMIT_USERS = 256  # up to here the limit on the error of the P99 TTFT holds
_RATIOS = (0.5, 0.9, 0.99)
_NOT_VALID = 3  # bakeoff's exit code for a run that was measured but is not to be trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """TTFTs and gaps of the same requests, from one side, in seconds."""

    ttft_s: list[float] = field(default_factory=list)
    gap_s: list[float] = field(default_factory=list)
    tokens: int = 0

    def percentiles_s(self) -> list[float]:
        """P50, P90 and P99 of the TTFT."""
        return [order_statistic(self.ttft_s, ratio) for ratio in _RATIOS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Client against server at one number of users.

    `pair_s`: for each request, the client's TTFT minus the server's.
    """

    users: int
    client: Samples
    server: Samples
    pair_s: list[float]
    errors: int
    merged_ratio: float
    server_late_p99_s: float
    cpu_s_per_token: float | None

    @property
    def p99_error_s(self) -> float:
        """The client's P99 TTFT minus the server's; positive: the client says too much."""
        return self.client.percentiles_s()[-1] - self.server.percentiles_s()[-1]

    @property
    def taken_ratio(self) -> float:
        """Token chunks that the client has, as a share of those the server sent."""
        return self.client.tokens / self.server.tokens if self.server.tokens else 0.0


def _samples(starts_s: Sequence[float], token_s: Sequence[Sequence[float]]) -> Samples:
    return Samples(
        ttft_s=[t[0] - start for start, t in zip(starts_s, token_s, strict=True)],
        gap_s=[b - a for t in token_s for a, b in pairwise(t)],
        tokens=sum(map(len, token_s)),
    )


def compare(
    rows: Sequence[dict[str, Any]], log: WrittenLog, *, users: int, cpu_s: float | None = None
) -> Verdict:
    """Match measured requests with the log by index.

    `rows`: requests.parquet as dicts. `cpu_s`: what the client used for all of them. A request
    without a token on either side counts as an error. RuntimeError if nothing can be matched.
    """
    row_of = {index: row for row, index in enumerate(log.columns["index"])}
    measured = [r for r in rows if r["phase"] == "measure"]
    good = [r for r in measured if r["chunk_s"] and r["error"] is None and r["index"] in row_of]
    if not good:
        raise RuntimeError(f"none of {len(measured)} measured requests is found in the log")
    _, sent = log.token_times()
    matched = [row_of[r["index"]] for r in good]
    client = _samples([r["sent_s"] for r in good], [r["chunk_s"] for r in good])
    arrivals = log.columns["arrival_s"]
    server = _samples([arrivals[m] for m in matched], [sent[m] for m in matched])
    return Verdict(
        users=users,
        client=client,
        server=server,
        pair_s=[c - s for c, s in zip(client.ttft_s, server.ttft_s, strict=True)],
        errors=len(measured) - len(good),
        merged_ratio=sum(r["merged_reads"] for r in good) / max(sum(r["reads"] for r in good), 1),
        server_late_p99_s=log.summary["late_p99_s"],
        cpu_s_per_token=None if cpu_s is None else cpu_s / sum(len(r["chunk_s"]) for r in rows),
    )


def client_cpu_s(run: StoredRun) -> float | None:
    """CPU time of the client over the run, from its samples; None if they do not say."""
    samples = run.host_samples().to_pylist()
    parts = [
        b["client_cpu_ratio"] * (b["t_s"] - a["t_s"])
        for a, b in pairwise(samples)
        if b["client_cpu_ratio"] is not None
    ]
    return sum(parts) if parts else None


def run_client(store: Path, *, port: int, users: int, requests: int) -> StoredRun:
    """Play the load by the command line; RuntimeError with its output if nothing was stored."""
    argv = [str(Path(sys.executable).with_name("bakeoff")), "run", "engine=openai"]
    argv += ["launch=attach", f"launch.base_url=http://127.0.0.1:{port}"]
    argv += ["model.served_name=stub", "scenario=fixed", "scenario.input_tokens=16"]
    argv += ["scenario.output_tokens=100", "load=users", f"load.users={users}"]
    argv += [f"load.requests={requests}", f"store={store}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode not in {0, _NOT_VALID}:
        raise RuntimeError(f"code {done.returncode}: {' '.join(argv)}\n{done.stdout}{done.stderr}")
    return open_runs(store).runs[0]


def measure(users: int, *, requests: int, server_cpu: int, client_cpu: int) -> Verdict:
    """Start the server, play one load against it, compare."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        os.sched_setaffinity(0, {client_cpu})  # the client inherits it, the server sets its own
        with running_server(path, "--cpu", str(server_cpu)) as port:
            run = run_client(Path(folder) / "store", port=port, users=users, requests=requests)
        rows = run.requests().to_pylist()
        return compare(rows, read_log(path), users=users, cpu_s=client_cpu_s(run))


def print_verdict(verdict: Verdict) -> None:
    """One block: client and server side by side, in ms."""
    names = ["TTFT P50", "TTFT P90", "TTFT P99", "gap P50", "gap P99"]
    both = [
        [*(s.percentiles_s()), order_statistic(s.gap_s, 0.5), order_statistic(s.gap_s, 0.99)]
        for s in (verdict.client, verdict.server)
    ]
    print(
        f"\n{verdict.users} users, {len(verdict.pair_s)} requests, {verdict.errors} lost or failed"
    )
    print("  ms          client     server      error")
    for name, client_s, server_s in zip(names, *both, strict=True):
        error_ms = (client_s - server_s) * 1e3
        print(f"  {name}  {client_s * 1e3:9.3f}  {server_s * 1e3:9.3f}  {error_ms:+9.3f}".rstrip())
    worst = max(abs(s) for s in verdict.pair_s) * 1e3
    print(f"  worst error of one request's TTFT: {worst:.3f} ms")
    print(
        f"  tokens taken: {verdict.taken_ratio:.2%}; reads with several: {verdict.merged_ratio:.2%}"
    )
    print(f"  the server's own lateness, P99: {verdict.server_late_p99_s * 1e3:.3f} ms")
    if verdict.cpu_s_per_token is not None:
        print(f"  client CPU: {verdict.cpu_s_per_token * 1e6:.1f} us a token")


def main() -> int:
    """Print a block for each number of users; 1 if the client is not to be trusted."""
    parser = argparse.ArgumentParser(description="Our client's figures against the truth.")
    parser.add_argument("users", type=int, nargs="*", default=[16, 64, 256])
    parser.add_argument("--requests-per-user", type=int, default=6)
    parser.add_argument("--limit-ms", type=float, default=1.0, help="on the error of the P99 TTFT")
    parser.add_argument("--server-cpu", type=int, default=1)
    parser.add_argument("--client-cpu", type=int, default=0)
    args = parser.parse_args()
    allow_sockets()
    failed = []
    for users in args.users:
        verdict = measure(
            users,
            requests=users * args.requests_per_user,
            server_cpu=args.server_cpu,
            client_cpu=args.client_cpu,
        )
        print_verdict(verdict)
        is_true = abs(verdict.p99_error_s) * 1e3 <= args.limit_ms and verdict.taken_ratio == 1
        if users <= _LIMIT_USERS and (not is_true or verdict.errors):
            failed.append(users)
    if failed:
        print(f"\nnot within {args.limit_ms:g} ms, or tokens lost, at {failed} users")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
