"""One load played for real: a run on one core against the reference server on another."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.calibrate.compare import compare, cpu_us_per_token
from harness.calibrate.cores import Cores, pinned
from harness.calibrate.point import Finding, Load, Point
from harness.calibrate.routes import Route
from harness.calibrate.server.log import read_log
from harness.calibrate.server.running import running_server
from harness.errors import BakeoffError, InvalidRunError
from harness.store import StoredRun, open_runs

_TRIES = 2
_PROGRAM = (sys.executable, "-m", "harness.calibrate.client")
_INPUT_TOKENS = 16


def measure_point(
    route: Route, load: Load, cores: Cores, *, program: Sequence[str] = _PROGRAM
) -> Point:
    """Play a load, a second time if the first is not good, and compare it with the server's log.

    Other work on the machine spoils a try, it does not improve one. `program`: what is run as
    the client, with the overrides of a run as its arguments. Raises what the client's run ended
    with, if nothing was measured.
    """
    for number in range(1, _TRIES + 1):
        point = replace(_play(route, load, cores, program), tries=number)
        if point.finding is Finding.GOOD:
            break
    return point


def _play(route: Route, load: Load, cores: Cores, program: Sequence[str]) -> Point:
    options = ["--cpu", str(cores.server), "--tokens-per-s", str(load.tokens_per_s), *route.server]
    with tempfile.TemporaryDirectory(prefix="bakeoff-calibrate-") as folder:
        path, store = Path(folder) / "server.log", Path(folder) / "store"
        with running_server(path, *options) as base_url, pinned(cores.client):
            run = _run_client([*program, *_overrides(route, load, base_url, store)], store)
        rows = run.requests().to_pylist()
        cpu = cpu_us_per_token(run, rows)
        return compare(rows, read_log(path), load, cpu_us_per_token=cpu)


def _overrides(route: Route, load: Load, base_url: str, store: Path) -> list[str]:
    return [
        *route.run,
        "launch=attach",
        f'launch.base_url="{base_url}"',
        "model.served_name=stub",
        "scenario=fixed",
        f"scenario.input_tokens={_INPUT_TOKENS}",
        f"scenario.output_tokens={load.tokens}",
        "load=users",
        f"load.users={load.streams}",
        f"load.requests={load.requests}",
        "load.force=true",  # the stored capacity is what is being measured
        f"store={store}",
    ]


def _run_client(argv: list[str], store: Path) -> StoredRun:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    # A run that is not valid is measured all the same, and what it says is the question.
    if done.returncode in {0, InvalidRunError.exit_code}:
        return open_runs(store).runs[0]
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    error = _error_of(done.returncode)
    raise error(f"the client's run ended with code {done.returncode}: {said[-1] if said else ''}")


def _error_of(code: int) -> Callable[[str], BakeoffError]:
    known = {kind.exit_code: kind for kind in reversed(BakeoffError.__subclasses__())}
    return known.get(code, BakeoffError)
