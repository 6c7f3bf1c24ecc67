"""Does the load client keep something of every request? Its memory over 200,000 of them.

One client process plays short requests against the reference server, as a level does it: journal
to disk, no garbage collector. The slope of its resident memory over the second half of the
requests (least squares) is what a request leaves behind; the first half fills pools and caches.

    python benchmarks/bench_memory.py
    python benchmarks/bench_memory.py --closing --requests 50000
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import gevent
from bench_server import allow_sockets
from gevent.hub import get_hub

from harness.calibrate.cores import choose_cores, pinned
from harness.calibrate.server.running import running_server
from harness.load.calls import http_bytes
from harness.load.job import Target
from harness.load.journal import FLUSH_S, JournalWriter, Kind
from harness.load.wire.client import Client, resolve
from harness.types import HttpCall

_LIMIT_BYTES = 100.0
_USERS = 32
_SAMPLES = 200
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BODY = json.dumps({"model": "stub", "prompt": "a", "stream": True, "max_tokens": 2}).encode()


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """Bytes a request: least squares through (requests, bytes)."""
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    across = sum((x - mean_x) * (y - mean_y) for x, y in samples)
    return across / sum((x - mean_x) ** 2 for x, _ in samples)


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


def play(port: int, requests: int, folder: Path, *, is_closing: bool) -> None:
    """Be the client; prints [requests done, resident bytes] as JSON, one a line."""
    journal = JournalWriter(folder / "journal.bin")
    client = Client(resolve(Target(host="127.0.0.1", port=port)), journal, timeout_s=60.0)
    numbers, every = count(), requests // _SAMPLES
    headers = {"Connection": "close"} if is_closing else {}

    def user() -> None:
        while (index := next(numbers)) < requests:
            if index % every == 0:
                print(json.dumps([index, rss_bytes()]), flush=True)
            call = HttpCall(path="/v1/completions", body=_BODY, headers=headers)
            journal.append(Kind.DUE, index, 0.0)
            ended = client.send(index, http_bytes(call, host="x", request_id=str(index)))
            if not ended.is_good:
                raise SystemExit(f"request {index}: {ended.reason}, status {ended.status}")

    gc.collect()
    gc.freeze()
    gc.disable()
    flusher = get_hub().loop.timer(FLUSH_S, FLUSH_S)
    flusher.start(journal.flush)
    gevent.joinall([gevent.spawn(user) for _ in range(_USERS)], raise_error=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a request leaves behind in the client.")
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--closing", action="store_true", help="a fresh connection each")
    parser.add_argument("--play", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(requests: int, *, is_closing: bool) -> list[tuple[float, float]]:
    """Play all requests in a process of its own; its samples."""
    cores = choose_cores(None, None)
    with tempfile.TemporaryDirectory() as folder:
        options = ["--cpu", str(cores.server), "--ttft-ms", "1", "--tokens-per-s", "1000"]
        argv = [sys.executable, __file__, "--requests", str(requests), "--folder", folder]
        argv += ["--closing"] if is_closing else []
        with running_server(Path(folder) / "log", *options) as url, pinned(cores.client):
            argv += ["--play", url.rpartition(":")[2]]
            done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def main() -> int:
    """Print the memory as it grows and the slope; 1 if that is above the limit."""
    args = _arguments()
    allow_sockets()
    if args.play:
        play(args.play, args.requests, args.folder, is_closing=args.closing)
        return 0
    samples = measure(args.requests, is_closing=args.closing)
    print("requests   resident MB")
    for requests, rss in samples[:: _SAMPLES // 10]:
        print(f"{requests:8.0f}  {rss / 1e6:12.1f}")
    left_bytes = slope(samples[len(samples) // 2 :])
    print(f"{left_bytes:+.1f} bytes a request; at most {_LIMIT_BYTES:g} are allowed")
    return int(left_bytes > _LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(main())
