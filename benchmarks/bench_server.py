"""What the reference server can do on one core, with a sink that reads and throws away.

First at a schedule (streams x tokens/s each): is every event on time? Then without one (all due at
once): how many events a second does it send? The sink runs on another core, wakes every few
milliseconds and reads in large pieces, so that what is measured is the server and not the sink.

    python benchmarks/bench_server.py --streams 256 1000
"""

import argparse
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stream_log import order_statistic, read_log

_SERVER = Path(__file__).with_name("stream_server.py")
_SINK_PAUSE_S = 0.004


@contextmanager
def running_server(log: Path, *options: str) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """Start the reference server with these options; gives its port and process.

    Ends it (which writes the log) on leaving; RuntimeError if it does not start.
    """
    argv = [sys.executable, str(_SERVER), "--log", str(log), *options]
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"{_SERVER.name} did not start: {line!r}")
        yield int(line.rpartition(":")[2]), server
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=120)


def request_bytes(*, tokens: int, index: int) -> bytes:
    """A completions request for a stream of this many tokens."""
    body = json.dumps({"model": "stub", "prompt": "a b", "stream": True, "max_tokens": tokens})
    head = f"POST /v1/completions HTTP/1.1\r\nHost: sink\r\nX-Request-Index: {index}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def sink(port: int, *, streams: int, tokens: int) -> int:
    """Ask for `streams` answers at once and read them all away; gives the bytes read."""
    address = ("127.0.0.1", port)
    socks = {s.fileno(): s for s in (socket.create_connection(address) for _ in range(streams))}
    epoll = select.epoll()
    for index, (fd, sock) in enumerate(socks.items()):
        epoll.register(fd, select.EPOLLIN)
        sock.sendall(request_bytes(tokens=tokens, index=index))
    buffer = bytearray(1 << 20)
    total = 0
    while socks:
        time.sleep(_SINK_PAUSE_S)
        for fd, _ in epoll.poll(timeout=30.0):
            count = socks[fd].recv_into(buffer)
            total += count
            if not count or buffer[count - 5 : count] == b"0\r\n\r\n":
                epoll.unregister(fd)
                socks.pop(fd).close()
    epoll.close()
    return total


def measure(*, streams: int, tokens: int, tokens_per_s: float, cpu: int) -> dict[str, Any]:
    """Play one level; gives the server's own summary and the rate while all streams ran.

    The rate counts the events between the last stream's first token and the first stream's last.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        options = ("--cpu", str(cpu), "--tokens-per-s", str(tokens_per_s), "--ttft-ms", "500")
        with running_server(path, *options) as (port, _):
            sink(port, streams=streams, tokens=tokens)
        log = read_log(path)
    _, sent = log.token_times()
    begin_s, end_s = max(s[0] for s in sent), min(s[-1] for s in sent)
    inside = [s for s in log.columns["event_sent_s"] if begin_s <= s < end_s]
    rate = len(inside) / (end_s - begin_s)
    gaps = [b - a for s in sent for a, b in zip(s, s[1:], strict=False)]
    cpu_s = log.settings["cpu_s"] / log.summary["events"]
    return {**log.summary, "steady_per_s": rate, "gap_p99_s": order_statistic(gaps, 0.99), "cpu_s_event": cpu_s}


def main() -> int:
    """Print one row a level; 1 if the unscheduled rate is below `--floor`."""
    parser = argparse.ArgumentParser(description="Capacity and punctuality of the server.")
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256, 1000])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each level")
    parser.add_argument("--floor", type=float, default=50_000.0, help="events/s that must be met")
    parser.add_argument("--server-cpu", type=int, default=1)
    parser.add_argument("--sink-cpu", type=int, default=0)
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.sink_cpu})
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print("streams  due/s    events/s   late P50 ms  P99 ms   max ms   CPU us/event  blocked")
    rate = 0.0
    for streams, tokens_per_s in [*((n, 50.0) for n in args.streams), (256, 1e3)]:
        is_free = tokens_per_s >= 1e3
        tokens = int(args.floor * args.seconds / streams if is_free else 50 * args.seconds)
        row = measure(
            streams=streams, tokens=tokens, tokens_per_s=tokens_per_s, cpu=args.server_cpu
        )
        rate = row["steady_per_s"]
        due = "all" if is_free else f"{streams * tokens_per_s:.0f}"
        late = [f"{row[f'late_{n}_s'] * 1e3:.3f}" for n in ("p50", "p99", "max")]
        if is_free:
            late = ["-", "-", "-"]
        print(
            f"{streams:7d}  {due:7s}  {rate:8.0f}  {late[0]:>12s} {late[1]:>7s} {late[2]:>8s}"
            f"  {row['cpu_s_event'] * 1e6:12.1f}  {row['blocked_sends']:7d}"
        )
    print(f"\nunscheduled: {rate:.0f} events/s on one core (asked: {args.floor:.0f})")
    return 0 if rate >= args.floor else 1


if __name__ == "__main__":
    sys.exit(main())
