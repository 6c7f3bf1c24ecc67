"""`calibrate`: how far our own client is off on this machine, and up to which load it is not."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from harness.calibrate.calibrate import calibrate_route
from harness.calibrate.capacity import RouteResult
from harness.calibrate.cores import Cores, choose_cores
from harness.calibrate.identity import identify
from harness.calibrate.ladder import FULL, QUICK
from harness.calibrate.point import ERROR_LIMIT_S, Load, Point
from harness.calibrate.routes import Route, choose_routes
from harness.calibrate.stored import Calibration, to_facts, write_calibration
from harness.errors import InvalidRunError
from harness.units import count


def calibrate(
    routes: str, *, quick: bool, as_json: bool, client_cpu: int | None, server_cpu: int | None
) -> int:
    """`bakeoff calibrate`; exit 3 if a route has no load at which the client can be trusted."""
    from harness.cli.running import interruptible

    interruptible()
    chosen = choose_routes(routes)
    cores = choose_cores(client_cpu, server_cpu)
    notes = Console(stderr=True, markup=False, highlight=False)

    def say(text: str) -> None:
        notes.print(text, style="dim", soft_wrap=True)

    say(f"client on core {cores.client}, reference server on core {cores.server}")
    for note in _notes(cores):
        say(f"note: {note}")
    calibration = _measure(chosen, cores, quick=quick, say=say)
    results = list(calibration.routes.values())
    if as_json:
        print(msgspec.json.encode(to_facts(calibration)).decode())
    else:
        print_results(Console(markup=False, highlight=False), results)
    return 0 if all(r.capacity_tokens_per_s for r in results) else InvalidRunError.exit_code


def _notes(cores: Cores) -> Iterator[str]:
    if cores.are_siblings:
        yield (
            "client and server share one physical core, so each slows the other down; choose "
            "others with --client-cpu and --server-cpu"
        )
    load, logical = os.getloadavg()[0], os.cpu_count() or 1
    if load > logical / 2:
        yield f"the machine is busy (load {load:.1f} on {logical} cores), and that will show"


def _measure(
    routes: Sequence[Route], cores: Cores, *, quick: bool, say: Callable[[str], None]
) -> Calibration:
    """Measure and store route by route, so that an interrupt loses one at most."""
    measured = Calibration(identity=identify(), routes={})
    for route in routes:
        result = calibrate_route(
            route,
            QUICK if quick else FULL,
            cores,
            on_load=partial(_say_load, say, route.name),
            on_point=lambda point: say(f"  {point.finding.value}"),
        )
        measured = replace(measured, routes={**measured.routes, route.name: result})
        if not quick:
            say(f"stored: {write_calibration(measured)}")
    if quick:
        say("not stored: --quick only shows that it works")
    return measured


def _say_load(say: Callable[[str], None], route: str, load: Load) -> None:
    rate = f"{load.streams} streams of {load.tokens_per_s:g} tokens/s"
    say(f"{route}: {rate}, {load.requests} answers")


def print_results(console: Console, results: Sequence[RouteResult]) -> None:
    """The capacities first, then a table of the points of each route."""
    for result in results:
        console.print(verdict_line(result), soft_wrap=True)
    for result in results:
        console.print(_table(result))


def verdict_line(result: RouteResult) -> str:
    """What a route can be trusted with, in one line."""
    limit_ms = ERROR_LIMIT_S * 1e3
    if result.capacity_tokens_per_s is None:
        return f"{result.route}: no load was measured within {limit_ms:g} ms"
    bound = "at least " if result.is_lower_bound else ""
    rate = count(int(result.capacity_tokens_per_s))
    cpu = result.cpu_us_per_token
    cost = "" if cpu is None else f", {cpu:.1f} us of CPU a token"
    return f"{result.route}: {bound}{rate} tokens/s within {limit_ms:g} ms{cost}"


def _table(result: RouteResult) -> Table:
    title = f"{result.route}: the client's P99 minus the server's, ms"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, show_edge=False)
    heads = ("streams", "tokens/s", "TTFT", "gaps", "taken", "merged", "CPU us", "server late")
    for head in heads:
        table.add_column(head, justify="right")
    table.add_column("finding")
    for point in result.points:
        table.add_row(*_cells(point))
    return table


def _cells(point: Point) -> tuple[str, ...]:
    cpu = point.cpu_us_per_token
    return (
        f"{point.streams}",
        count(int(point.offered_tokens_per_s)),
        f"{point.ttft_error_p99_s * 1e3:+.3f}",
        f"{point.gap_error_p99_s * 1e3:+.3f}",
        f"{point.taken_ratio:.1%}",
        f"{point.merged_ratio:.1%}",
        "-" if cpu is None else f"{cpu:.1f}",
        f"{point.server_late_p99_s * 1e3:.3f}",
        point.finding.value,
    )
