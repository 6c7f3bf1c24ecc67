"""The process of a worker: its arguments, its signals, its files, its end."""

import argparse
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import gevent

from harness.errors import BakeoffError, InterruptedRunError
from harness.load.distributed.worker import Worker
from harness.load.process import die_with_parent, primed


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bakeoff worker")
    parser.add_argument("master")
    parser.add_argument("--place", type=int)
    parser.add_argument("--parent", type=int)
    parser.add_argument("--wait-s", type=float, default=60.0)
    return parser.parse_args()


def _on_interrupt(do: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, do)


def work() -> int:
    """Work for the master until it says that all is played; returns the exit code."""
    arguments = _arguments()
    host, _, port = arguments.master.rpartition(":")
    is_ours = arguments.place is not None
    if is_ours and not die_with_parent(arguments.parent):
        return 1
    primer = primed()
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the master decides when to end
    else:
        _on_interrupt(partial(gevent.kill, gevent.getcurrent(), InterruptedRunError("interrupted")))
        _say(f"waiting for a master at {arguments.master}")
    with TemporaryDirectory(prefix="bakeoff-worker-") as folder:
        try:
            worker = Worker(
                host,
                int(port),
                wait_s=arguments.wait_s,
                place=arguments.place,
                folder=Path(folder),
                tell=(lambda _: None) if is_ours else _say,
            )
            if not is_ours:
                _on_interrupt(worker.interrupt)
            worker.run()
        except BakeoffError as error:
            sys.stderr.write(f"bakeoff: {error}\n")
            return error.exit_code
    primer.close()
    return 0
