"""Do other load tools tell the truth? Each tool's own report beside what the server really did.

The reference server (first token 70 ms after the request, then 50 a second) runs on one core, the
tool on another, under the same closed load. The truth are the requests that the tool counted, as
the server logged them. Tools that are not there are left out; `--install` brings them, each into
an environment of its own.

    python benchmarks/bench_peers.py --install --tools guidellm,aiperf
    python benchmarks/bench_peers.py --streams 128
"""

import argparse
import shlex
import sys
import tempfile
from pathlib import Path

from bench_server import allow_sockets
from peers_commands import Job
from peers_environments import install, version_in, write_tokenizer
from peers_process import NoResultError, run_limited
from peers_tools import TOOLS, environment_of
from peers_truth import Row, compare, table

from harness.calibrate.cores import Cores, choose_cores
from harness.calibrate.server.log import read_log
from harness.calibrate.server.running import running_server
from harness.errors import EnvironmentInstallError
from harness.paths import cache_dir


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
        others_ratio = run_limited(
            argv,
            folder,
            cpu=cores.client,
            limit_s=args.timeout_s,
            env=tool.env,
            good_codes=tool.good_codes,
        )
    try:
        said = tool.read(folder)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise NoResultError(f"its report cannot be read: {error!r}") from error
    version = version_in(environment, tool.distribution) or "?"
    log = read_log(folder / "server.log")
    return compare(name, version, said, log, others_ratio=others_ratio)


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
