"""Does our load client tell the truth? Its figures against those of a server with a schedule.

The reference server runs on one core, `bakeoff run` on another, through the command line as a user
would. What the client says (first token - sent, gaps between chunks) is set beside what the server
logged for the same requests (first send - kernel's arrival of the request, gaps between sends).
Percentiles are order statistics of the raw samples, as everywhere in `bakeoff calibrate`, whose
measurement this is.

    python benchmarks/bench_truth.py 16 64 256 1000
"""

import argparse
import sys

from bench_server import allow_sockets

from harness.calibrate.cores import choose_cores
from harness.calibrate.measure import measure_point
from harness.calibrate.point import LATE_LIMIT_S, TAKEN_MIN_RATIO, Load, Point
from harness.calibrate.routes import choose_routes

_TOKENS_PER_S = 50.0
_TOKENS = 100
_TTFT_LIMIT_S = 0.5e-3
_GAP_LIMIT_S = {256: 1e-3, 1000: 3e-3}  # by the number of streams it holds up to
_CPU_LIMIT_US, _CPU_FROM_STREAMS = 12.0, 256  # below, what happens once a run weighs too much
_HEAD = (
    "streams requests  TTFT P99   gap P99   worst TTFT    taken  merged   CPU us/token  server P99"
)


def gap_limit_s(streams: int) -> float:
    """How far off the P99 of the chunk gaps may be."""
    return next((s for most, s in _GAP_LIMIT_S.items() if streams <= most), _GAP_LIMIT_S[1000])


def missed(point: Point, *, route: str = "http") -> list[str]:
    """The limits that this point does not keep; empty if it keeps all. CPU is limited for http."""
    cpu_us = point.cpu_us_per_token
    is_dear = route == "http" and (cpu_us is None or cpu_us > _CPU_LIMIT_US)
    checks = {
        "TTFT": abs(point.ttft_error_p99_s) > _TTFT_LIMIT_S,
        "gaps": abs(point.gap_error_p99_s) > gap_limit_s(point.streams),
        "tokens": point.taken_ratio < TAKEN_MIN_RATIO,
        "failed": point.failed > 0,
        "CPU": point.streams >= _CPU_FROM_STREAMS and is_dear,
        "server late": point.server_late_p99_s > LATE_LIMIT_S,
    }
    return [name for name, is_missed in checks.items() if is_missed]


def row(point: Point, *, route: str = "http") -> str:
    """One line of the table; errors in ms, the client's figure minus the server's."""
    cpu = "-" if point.cpu_us_per_token is None else f"{point.cpu_us_per_token:.1f}"
    return (
        f"{point.streams:7d} {point.requests:8d}  {point.ttft_error_p99_s * 1e3:+8.3f}  "
        f"{point.gap_error_p99_s * 1e3:+8.3f}   {point.ttft_worst_error_s * 1e3:10.3f}  "
        f"{point.taken_ratio:7.2%}  {point.merged_ratio:6.2%}  {cpu:>12s}  "
        f"{point.server_late_p99_s * 1e3:11.3f}  {', '.join(missed(point, route=route))}"
    ).rstrip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Our client's figures against the truth.")
    parser.add_argument("streams", type=int, nargs="*", default=[16, 64, 256, 1000])
    parser.add_argument("--route", default="http", help="http, tls or grpc")
    parser.add_argument("--requests-per-stream", type=int, default=6)
    parser.add_argument("--server-cpu", type=int)
    parser.add_argument("--client-cpu", type=int)
    return parser.parse_args()


def main() -> int:
    """Print a row for each number of streams; 1 if one of them misses a limit."""
    args = _arguments()
    allow_sockets()
    cores = choose_cores(args.client_cpu, args.server_cpu)
    (route,) = choose_routes(args.route)
    print("errors in ms: client minus server; the last column names limits that are missed")
    print(_HEAD)
    failed = False
    for streams in args.streams:
        load = Load(
            streams=streams,
            tokens_per_s=_TOKENS_PER_S,
            requests=streams * args.requests_per_stream,
            tokens=_TOKENS,
        )
        point = measure_point(route, load, cores)
        print(row(point, route=route.name), flush=True)
        failed |= bool(missed(point, route=route.name))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
