"""A reference server with a known schedule: the truth that our load client is judged by.

It speaks HTTP/1.1 with chunked `text/event-stream` in the form of the OpenAI API, or gRPC. The
first token of an answer is due `--ttft-ms` after the request reached this machine's kernel
(SO_TIMESTAMPNS: a late server must not bend the truth), then one every 1 / `--tokens-per-s`. Every
send is logged with its due time.

    python -m harness.calibrate.server --port 8000 --cpu 1 --log server.log
"""

import argparse
import gc
import json
import math
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from ctypes import CDLL
from pathlib import Path

from harness.calibrate.server.grpc import GrpcFront
from harness.calibrate.server.log import StreamLog
from harness.calibrate.server.openai import OpenAiFront
from harness.calibrate.server.reference import StreamServer
from harness.calibrate.server.tls import server_context

_PR_SET_PDEATHSIG = 1  # Linux, sys/prctl.h


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a finite number > 0")
    return value


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A reference server with a known schedule.")
    parser.add_argument("--host", default="127.0.0.1", help="an address of this machine, or ::1")
    parser.add_argument("--port", type=int, default=0, help="0: a free one (printed)")
    parser.add_argument("--grpc", action="store_true", help="speak gRPC (DeepSpeed-MII's service)")
    parser.add_argument("--tls", action="store_true", help="with the certificate that ships")
    parser.add_argument("--cpu", type=int, help="the core to run on; default: any")
    parser.add_argument("--ttft-ms", type=_positive, default=70.0)
    parser.add_argument("--tokens-per-s", type=_positive, default=50.0, help="of each stream")
    parser.add_argument("--parent", type=int, help="end when this process, our parent, has ended")
    parser.add_argument("--log", type=Path, help="where the log is written at the end")
    return parser.parse_args()


def _end_with(parent: int) -> None:
    """Let the kernel send SIGTERM when the parent ends, even if it is killed."""
    CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it had ended before
        raise SystemExit(1)


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


def _listener(host: str, port: int) -> tuple[socket.socket, str]:
    """A listening socket and the HOST:PORT that a URL names it by."""
    is_six = ":" in host
    family = socket.AF_INET6 if is_six else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=4096)
    port = listener.getsockname()[1]
    return listener, f"[{host}]:{port}" if is_six else f"{host}:{port}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until SIGTERM or SIGINT, then write the log and print its summary as JSON."""
    args = _arguments()
    if args.parent is not None:
        _end_with(args.parent)
    scheduling = _own_the_core(args.cpu)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listener, address = _listener(args.host, args.port)
    log = StreamLog()
    server = StreamServer(
        listener,
        log,
        ttft_s=args.ttft_ms * 1e-3,
        tokens_per_s=args.tokens_per_s,
        tls=server_context() if args.tls else None,
        front=GrpcFront if args.grpc else OpenAiFront,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    _say(f"listening on {'https' if args.tls else 'http'}://{address}")
    gc.collect()
    gc.freeze()
    gc.disable()
    server.run()
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime
    settings = {**vars(args), "log": str(args.log), "cpu_s": cpu_s, "scheduling": scheduling}
    if args.log is not None:
        log.write(args.log, settings=settings)
    with suppress(BrokenPipeError):  # the parent has ended before
        _say(json.dumps({**log.summary(), "cpu_s": cpu_s}))


if __name__ == "__main__":
    main()
