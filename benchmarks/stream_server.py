"""A reference server with a known schedule: the truth that our load client is judged by.

It speaks HTTP/1.1 with chunked `text/event-stream` in the form of the OpenAI API. The first token
of an answer is due `--ttft-ms` after the request reached this machine's kernel (SO_TIMESTAMPNS: a
late server must not bend the truth), then one every 1 / `--tokens-per-s`. Every send is logged
with its due time (`stream_log.py`). One process, one thread, standard library, Linux.

    python benchmarks/stream_server.py --port 8000 --cpu 1 --log server.log
"""

import argparse
import gc
import json
import math
import os
import resource
import signal
import socket
from pathlib import Path

from stream_log import StreamLog
from stream_loop import StreamServer


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a finite number > 0")
    return value


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A reference server with a known schedule.")
    parser.add_argument("--port", type=int, default=0, help="0: a free one (printed)")
    parser.add_argument("--cpu", type=int, help="the core to run on; default: any")
    parser.add_argument("--ttft-ms", type=_positive, default=70.0)
    parser.add_argument("--tokens-per-s", type=_positive, default=50.0, help="of each stream")
    parser.add_argument("--log", type=Path, help="where the log is written at the end")
    return parser.parse_args()


def _own_the_core(cpu: int | None) -> str:
    """Pin to `cpu`, and come before others on it if we may; gives the scheduling reached.

    Under the plain policy whatever else wants the core holds the server up for a tick, 4 ms;
    as a real-time process it was late by 0.06 ms (P99) with two busy loops beside it.
    """
    if cpu is None:
        return "plain"
    os.sched_setaffinity(0, {cpu})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:  # not root: others on the core show as lateness in the log
        return "plain"
    return "fifo"


def main() -> None:
    """Serve until SIGTERM or SIGINT, then write the log and print its summary as JSON."""
    args = _arguments()
    scheduling = _own_the_core(args.cpu)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listener = socket.create_server(("127.0.0.1", args.port), backlog=4096)
    log = StreamLog()
    server = StreamServer(listener, log, ttft_s=args.ttft_ms * 1e-3, tokens_per_s=args.tokens_per_s)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    gc.collect()
    gc.freeze()
    gc.disable()
    server.run()
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime
    settings = {**vars(args), "log": str(args.log), "cpu_s": cpu_s, "scheduling": scheduling}
    if args.log is not None:
        log.write(args.log, settings=settings)
    print(json.dumps({**log.summary(), "cpu_s": cpu_s}), flush=True)


if __name__ == "__main__":
    main()
