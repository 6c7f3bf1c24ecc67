"""What the reference server can do on one core, with a sink that reads and throws away.

First by the schedule (streams x 50 tokens/s): is every event on time? Then with far more due than
any core can send: how many events a second go out? The sink runs on another core, wakes every few
milliseconds and reads in large pieces, so that what is measured is the server and not the sink.

    python benchmarks/bench_server.py --streams 256 1000
"""

import argparse
import json
import os
import resource
import select
import socket
import ssl
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.calibrate.server.log import read_log
from harness.calibrate.server.running import running_server
from harness.calibrate.server.tls import CERTIFICATE

_SINK_PAUSE_S = 0.004
_TOKENS_PER_S = 50.0
_FLOOD_STREAMS, _FLOOD_PER_S = 256, 4000.0  # a million events a second are due


def allow_sockets() -> None:
    """Raise this process's limit of open files to what it may have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def request_bytes(*, tokens: int, index: int) -> bytes:
    """A completions request for a stream of this many tokens."""
    body = json.dumps({"model": "stub", "prompt": "a b", "stream": True, "max_tokens": tokens})
    head = f"POST /v1/completions HTTP/1.1\r\nHost: sink\r\nX-Request-Index: {index}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def _connected(base_url: str) -> socket.socket:
    address = urlsplit(base_url)
    sock = socket.create_connection((address.hostname, address.port))
    if address.scheme == "http":
        return sock
    context = ssl.create_default_context(cafile=CERTIFICATE)
    return context.wrap_socket(sock, server_hostname=address.hostname)


def sink(base_url: str, *, streams: int, tokens: int, spread_s: float) -> None:
    """Ask for `streams` answers within `spread_s` and read them all away."""
    socks = {s.fileno(): s for s in (_connected(base_url) for _ in range(streams))}
    epoll = select.epoll()
    for index, (fd, sock) in enumerate(socks.items()):
        epoll.register(fd, select.EPOLLIN)
        sock.sendall(request_bytes(tokens=tokens, index=index))
        time.sleep(spread_s / streams)  # else their tokens would be due together for ever
    buffer = bytearray(1 << 20)
    while socks:
        time.sleep(_SINK_PAUSE_S)
        for fd, _ in epoll.poll(timeout=30.0):
            count = socks[fd].recv_into(buffer)
            if not count or buffer[count - 5 : count] == b"0\r\n\r\n":
                epoll.unregister(fd)
                socks.pop(fd).close()
    epoll.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One measured level. `rate`: events/s while all streams ran; `summary`: the server's own."""

    rate: float
    summary: dict[str, Any]


def measure(
    *, streams: int, tokens: int, tokens_per_s: float, cpu: int, is_tls: bool = False
) -> Level:
    """Play one level against a fresh server.

    The rate counts the events from the last stream's first token to the first stream's last.
    RuntimeError if an answer is not complete.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        options = ["--cpu", str(cpu), "--tokens-per-s", str(tokens_per_s), "--ttft-ms", "500"]
        options += ["--tls"] if is_tls else []
        with running_server(path, *options) as base_url:
            sink(base_url, streams=streams, tokens=tokens, spread_s=1 / tokens_per_s)
        log = read_log(path)
    if log.summary["complete"] != streams:
        raise RuntimeError(f"{log.summary['complete']} of {streams} answers are complete")
    _, sent = log.token_times()
    begin_s, end_s = max(s[0] for s in sent), min(s[-1] for s in sent)
    inside = sum(begin_s <= s < end_s for s in log.columns["event_sent_s"])
    return Level(rate=inside / (end_s - begin_s), summary=log.summary)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Capacity and punctuality of the server.")
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256, 1000])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each level")
    parser.add_argument("--floor", type=float, default=50_000.0, help="events/s that must be met")
    parser.add_argument("--tls", action="store_true", help="encrypted; the sink decrypts")
    parser.add_argument("--server-cpu", type=int, default=1)
    parser.add_argument("--sink-cpu", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    """Print one row a level; 1 if the flooded server sends fewer events/s than `--floor`."""
    args = _arguments()
    os.sched_setaffinity(0, {args.sink_cpu})
    allow_sockets()
    print("streams    due/s  events/s   late P50 ms   P99 ms   max ms   blocked sends")
    for streams in args.streams:
        tokens = max(int(_TOKENS_PER_S * args.seconds), 2)
        level = measure(
            streams=streams,
            tokens=tokens,
            tokens_per_s=_TOKENS_PER_S,
            cpu=args.server_cpu,
            is_tls=args.tls,
        )
        late = [level.summary[f"late_{name}_s"] * 1e3 for name in ("p50", "p99", "max")]
        print(
            f"{streams:7d}  {streams * _TOKENS_PER_S:7.0f}  {level.rate:8.0f}  {late[0]:12.3f}"
            f" {late[1]:8.3f} {late[2]:8.3f}  {level.summary['blocked_sends']:14d}"
        )
    flood = measure(
        streams=_FLOOD_STREAMS,
        tokens=int(2 * args.floor * args.seconds / _FLOOD_STREAMS),
        tokens_per_s=_FLOOD_PER_S,
        cpu=args.server_cpu,
        is_tls=args.tls,
    )
    print(f"{_FLOOD_STREAMS:7d}  {_FLOOD_STREAMS * _FLOOD_PER_S:7.0f}  {flood.rate:8.0f}", end="")
    print(f"{'(as fast as it can)':>32s}  {flood.summary['blocked_sends']:14d}")
    print(f"\n{flood.rate:.0f} events/s on one core; at least {args.floor:.0f} are asked for")
    return 0 if flood.rate >= args.floor else 1


if __name__ == "__main__":
    sys.exit(main())
