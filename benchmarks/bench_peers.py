"""Do other load tools tell the truth? Each tool's own report beside what the server really did.

The reference server (first token 70 ms after the request, then 50 a second) runs on one core, the
tool on another, under the same closed load. The truth are the requests that the tool counted, as
the server logged them. Tools that are not there are left out; `--install` brings them, each into
an environment of its own.

    python benchmarks/bench_peers.py --install --tools guidellm,aiperf
    python benchmarks/bench_peers.py --streams 128
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
from bench_server import allow_sockets
from peers_environments import install, version_in, write_tokenizer
from peers_reports import Between, Said
from peers_tools import TOOLS, Job, Tool, environment_of

from harness.calibrate.cores import Cores, choose_cores, pinned
from harness.calibrate.server.log import OutcomeCode, WrittenLog, order_statistic, read_log
from harness.calibrate.server.running import running_server
from harness.errors import EnvironmentInstallError
from harness.paths import cache_dir

_SHOWN_LINES = 3  # of the output of a tool that failed


class NoResultError(RuntimeError):
    """A tool brought no figures; its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A tool's figures and the server's for the same requests, in seconds."""

    tool: str
    version: str
    said: Said
    true_ttft_p50_s: float
    true_ttft_p99_s: float
    true_between_p99_s: float
    server_late_p99_s: float


def compare(tool: str, version: str, said: Said, log: WrittenLog) -> Row:
    """Set a report beside the log.

    Every tool warms up first, so what it counts are the last requests that were answered.
    NoResultError if it counts none, or more than there were.
    """
    arrival_s = log.columns["arrival_s"]
    _, sent_s = log.token_times()
    outcomes = enumerate(log.columns["outcome"])
    answered = [row for row, outcome in outcomes if outcome == OutcomeCode.COMPLETE]
    if not 0 < said.requests <= len(answered):
        raise NoResultError(f"it counts {said.requests} requests of {len(answered)} answered")
    counted = sorted(answered, key=lambda row: arrival_s[row])[-said.requests :]
    ttft_s = [sent_s[row][0] - arrival_s[row] for row in counted]
    if said.between is Between.GAP:
        between_s = [b - a for row in counted for a, b in pairwise(sent_s[row])]
    else:
        spans = [(sent_s[row][-1] - sent_s[row][0], len(sent_s[row]) - 1) for row in counted]
        between_s = [span_s / gaps for span_s, gaps in spans if gaps]
    return Row(
        tool=tool,
        version=version,
        said=said,
        true_ttft_p50_s=order_statistic(ttft_s, 0.5),
        true_ttft_p99_s=order_statistic(ttft_s, 0.99),
        true_between_p99_s=order_statistic(between_s, 0.99),
        server_late_p99_s=log.summary["late_p99_s"],
    )


def run_limited(argv: Sequence[str], tool: Tool, folder: Path, *, limit_s: float) -> None:
    """Run a tool in its folder, its output into `output.txt` there.

    NoResultError, with its last lines, if it does not end well within `limit_s`; then it and all
    that it started is ended.
    """
    output = folder / "output.txt"
    env = {**os.environ, **tool.env}
    with output.open("wb") as file, ExitStack() as stack:
        stdin = subprocess.DEVNULL
        process = psutil.Popen(
            argv, cwd=folder, env=env, stdin=stdin, stdout=file, stderr=subprocess.STDOUT
        )
        stack.callback(_end, process)
        try:
            code = process.wait(timeout=limit_s)
        except psutil.TimeoutExpired as error:
            raise NoResultError(f"not done after {limit_s:.0f} s") from error
    if code not in tool.good_codes:
        lines = [line.strip() for line in output.read_text(errors="replace").splitlines()]
        said = " / ".join([line for line in lines if line][-_SHOWN_LINES:])
        raise NoResultError(f"it ended with code {code}: {said}")


def _end(process: psutil.Popen) -> None:
    """End a process that still runs, with everything that it started."""
    if process.is_running():
        for one in [*process.children(recursive=True), process]:
            one.kill()
        process.wait()


def measure(name: str, environment: Path, args: argparse.Namespace, folder: Path) -> Row:
    """Run one tool against a fresh server; NoResultError if it says nothing that can be read."""
    tool = TOOLS[name]
    cores: Cores = args.cores
    folder.mkdir(parents=True)
    with running_server(folder / "server.log", "--cpu", str(cores.server)) as base_url:
        job = Job(
            base_url=base_url,
            folder=folder,
            tokenizer=folder.parent / "tokenizer",
            streams=args.streams,
            requests_per_stream=args.requests_per_stream,
            ramp_s=args.ramp_s,
        )
        argv = tool.argv(environment, job)
        print(f"\n{name}: {shlex.join(argv)}", flush=True)
        with pinned(cores.client):
            run_limited(argv, tool, folder, limit_s=args.timeout_s)
    try:
        said = tool.read(folder)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise NoResultError(f"its report cannot be read: {error!r}") from error
    version = version_in(environment, tool.distribution) or "?"
    return compare(name, version, said, read_log(folder / "server.log"))


def _trio(said_s: float, true_s: float) -> str:
    return f"{said_s * 1e3:8.1f} {true_s * 1e3:7.1f} {(said_s - true_s) * 1e3:+8.1f}"


def table(rows: Sequence[Row]) -> list[str]:
    """The lines of the table, in ms; `error` is what the tool says minus the truth."""
    trio = f"{'said':>8s} {'true':>7s} {'error':>8s}"
    columns = f"{'tool':12s} {'version':11s} {'requests':>8s} {'failed':>6s}"
    blank = " " * len(columns)
    lines = [
        f"{blank} | {'TTFT P50':^25s} | {'TTFT P99':^25s} | {'between tokens P99':^30s} |  server",
        f"{columns} | {trio} | {trio} | {trio} {'of':4s} | late P99",
    ]
    for row in rows:
        said = row.said
        lines.append(
            f"{row.tool:12s} {row.version:11s} {said.requests:8d} {said.failed:6d}"
            f" | {_trio(said.ttft_p50_s, row.true_ttft_p50_s)}"
            f" | {_trio(said.ttft_p99_s, row.true_ttft_p99_s)}"
            f" | {_trio(said.between_p99_s, row.true_between_p99_s)} {said.between:4s}"
            f" | {row.server_late_p99_s * 1e3:8.2f}"
        )
    return lines


def _tools(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in TOOLS]:
        allowed = ", ".join(TOOLS)
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not known; choose of {allowed}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Other load tools' figures against the truth.")
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--requests-per-stream", type=int, default=6)
    parser.add_argument("--ramp-s", type=float, default=2.0, help="0: all streams begin at once")
    parser.add_argument("--tools", type=_tools, default=list(TOOLS), help=",".join(TOOLS))
    parser.add_argument("--envs", type=Path, default=cache_dir() / "peers", help="DIR/TOOL/bin")
    parser.add_argument("--install", action="store_true", help="the tools that are missing; no run")
    parser.add_argument("--timeout-s", type=float, default=180.0, help="for each tool")
    parser.add_argument("--keep", type=Path, help="a new folder for the reports and logs")
    parser.add_argument("--client-cpu", type=int)
    parser.add_argument("--server-cpu", type=int)
    return parser.parse_args()


def _install(args: argparse.Namespace) -> int:
    failed = 0
    for name in args.tools:
        tool = TOOLS[name]
        if environment_of(name, args.envs) is not None:
            print(f"{name}: is there")
            continue
        print(f"{name}: installing {', '.join(tool.packages)}", flush=True)
        try:
            install(args.envs / name, tool.packages, left_out=tool.left_out)
        except EnvironmentInstallError as error:
            print(f"{name}: cannot be installed: {error}")
            failed += 1
    return 1 if failed else 0


def main() -> int:
    """Print the command lines, one table, and what was left out and why; 0 also if all was."""
    args = _arguments()
    if args.install:
        return _install(args)
    args.cores = choose_cores(args.client_cpu, args.server_cpu)
    allow_sockets()
    rows, left_out = [], []
    with tempfile.TemporaryDirectory(prefix="bakeoff-peers-") as temporary:
        root = (args.keep or Path(temporary)).absolute()
        write_tokenizer(root / "tokenizer")
        for name in args.tools:
            environment = environment_of(name, args.envs)
            if environment is None:
                left_out.append(f"{name}: not in {args.envs / name}; --install brings it")
                continue
            try:
                rows.append(measure(name, environment, args, root / name))
            except NoResultError as error:
                left_out.append(f"{name}: {error}")
    began = f"begun over {args.ramp_s:g} s" if args.ramp_s else "begun at once"
    print(f"\n{args.streams} streams, {began} (ours always at once); ms")
    print("\n".join(table(rows)))
    for line in left_out:
        print(f"left out: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
