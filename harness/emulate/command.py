"""`bakeoff emulate ENGINE`: serve an engine's wire over the timing model until it is stopped."""

import argparse
import gc
import json
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from types import FrameType
from typing import NoReturn

from harness.calibrate.server.epoll_loop import EpollLoop
from harness.emulate.engines import WIRES, played, wire_class
from harness.emulate.options import add_options, read_options
from harness.emulate.server.fronts import reader
from harness.emulate.server.gate import Gate
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.server.stream import ClientConnection
from harness.errors import ConfigError

_LAST_PORT = 65535
_TRIES = 20  # to find a free port whose neighbour is free too
_READS_A_TURN = 64  # requests taken in before the next step begins; more wait for the one after


def serve(arguments: Sequence[str], program: str = "bakeoff emulate") -> int:
    """Serve until SIGTERM or SIGINT, then print what was sent and how late; returns 0.

    Prints first the knobs, then `listening on http://HOST:PORT`. ConfigError for what cannot be
    served.
    """
    options = _parser(program).parse_args(arguments)
    wire = wire_class(options.engine)
    conf = played(read_options(options), wire)
    if not wire.manners.listens_while_loading:
        time.sleep(conf.loading_s / conf.speed)  # its port is closed as long
        conf = replace(conf, loading_s=0.0)
    speaks = wire(conf, tuple(options.served_names))
    manners = wire.manners
    listeners = _listen_all(options.host, options.port, manners.port_offset)
    host, port = listeners[0].getsockname()[:2]
    _say(f"emulated {options.engine}: {json.dumps(asdict(conf))}")
    pace = Pace(conf.speed)
    player = Player(conf, pace, manners.disconnect_poll_s)
    on_read = reader(speaks, Gate(conf, player, pace))
    loop = EpollLoop(
        *listeners,
        connect=lambda sock, epoll: ClientConnection(sock, epoll, player),
        on_read=on_read,
        send_due=player.advance,
        reads_a_turn=_READS_A_TURN,
    )

    def stop(_number: int, _frame: FrameType | None) -> None:
        loop.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    _say(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection would hold every stream up; nothing here leaves cycles
    loop.run()
    for listener in listeners:
        listener.close()
    _say(json.dumps(summary(player)))
    return 0


def summary(player: Player) -> dict[str, object]:
    """What was sent, how late, and what it took."""
    used, late = resource.getrusage(resource.RUSAGE_SELF), player.lateness
    counters = player.counters
    return {
        "requests": dict(player.finished),
        "tokens": counters.generation,
        "preemptions": counters.preemptions,
        "steps": counters.steps,
        "busy_s": round(counters.busy_s, 3),
        "events": late.events,
        "late_p50_s": late.quantile_s(0.5),
        "late_p99_s": late.quantile_s(0.99),
        "late_max_s": late.max_s,
        "cpu_s": used.ru_utime + used.ru_stime,
    }


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, as all our commands do."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(f"{message}; see: {self.prog} --help")


def _parser(program: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=program,
        usage="%(prog)s ENGINE [OPTION]...",
        allow_abbrev=False,
        description="Serve an engine's API over a timing model. All times are the emulated "
        "engine's own and are divided by --speed.",
    )
    parser.add_argument("engine", help=f"which engine's API: {', '.join(sorted(WIRES))}")
    parser.add_argument("--host", default="127.0.0.1", help="(default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="0: a free one, printed (default)")
    parser.add_argument(
        "--served-names",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names of models and LoRA adapters; left out: every name",
    )
    add_options(parser)
    return parser


def _listen_all(host: str, port: int, offset: int) -> list[socket.socket]:
    """The port, and the one so far above it if `offset` says so; a free port needs both free."""
    for _ in range(_TRIES if port == 0 else 1):
        first = _listen(host, port)
        if not offset:
            return [first]
        try:
            return [first, _listen(host, first.getsockname()[1] + offset)]
        except ConfigError as error:
            first.close()
            refused = error
    raise refused


def _listen(host: str, port: int) -> socket.socket:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if not 0 <= port <= _LAST_PORT:  # the socket would be left open
        raise ConfigError(f"--port={port}: must be between 0 and {_LAST_PORT}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=4096)
    except OSError as error:
        raise ConfigError(
            f"--host={host} --port={port}: cannot be served: {error.strerror or error}"
        ) from error


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
