"""The `bakeoff` command: verdict first, tables after; heavy imports only where they are used."""

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from harness.errors import BakeoffError

app = typer.Typer(
    help="Which LLM inference engine to run, with which settings, on this hardware for this load, "
    "and what it costs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
engines = typer.Typer(help="Engine environments: what is installed, and what could be.")
app.add_typer(engines, name="engines", no_args_is_help=True)

_HYDRA = {"ignore_unknown_options": True, "allow_extra_args": True}
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[OVERRIDE]...", help="Hydra overrides and flags, such as load.users=8"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of text.")]
Slo = Annotated[str, typer.Option(help="A preset of conf/slo, or none.")]
Store = Annotated[
    Path | None,
    typer.Argument(help="A run, sweep or store folder; left out: the reference runs."),
]


@app.command(context_settings=_HYDRA)
def run(overrides: Overrides = None) -> int:
    """Start engines, play the load, store what was measured, print the verdict.

    For instance: bakeoff run engine.max_running=1,8 load.users=8 repeats=4 name=slots
    """
    from harness.cli.running import run_sweep

    return run_sweep(overrides or [])


@app.command(context_settings=_HYDRA)
def plan(overrides: Overrides = None, *, as_json: Json = False) -> int:
    """Show what `run` would do with these overrides; starts nothing."""
    from harness.cli.running import show_plan

    return show_plan(overrides or [], as_json=as_json)


@app.command()
def report(
    store: Store = None,
    *,
    out: Annotated[Path | None, typer.Option(help="The HTML file to write.")] = None,
    slo: Slo = "none",
) -> int:
    """Write one offline HTML file about stored runs, and print the verdict."""
    from harness.cli.reading import write_html

    return write_html(store, out, slo)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="A run or sweep folder.")],
    b: Annotated[Path, typer.Argument(help="The one to compare it with.")],
    *,
    as_json: Json = False,
) -> int:
    """Compare two runs or sweeps; refuses (exit 7) what cannot be compared, and says why."""
    from harness.cli.reading import compare_two

    return compare_two(a, b, as_json=as_json)


@app.command()
def recommend(
    store: Store = None,
    *,
    scenario: Annotated[str | None, typer.Option(help="Which scenario is yours.")] = None,
    slo: Slo = "none",
    objective: Annotated[
        str | None, typer.Option(help="cost, throughput or latency; cost if there is a price.")
    ] = None,
    input_tokens: Annotated[
        int | None, typer.Option(help="Longest prompt of the workload.")
    ] = None,
    output_tokens: Annotated[int | None, typer.Option(help="Longest answer.")] = None,
    as_json: Json = False,
) -> int:
    """Say which engine and settings to run, with the runs that say so; or refuse (exit 7)."""
    from harness.cli.reading import recommend_from

    return recommend_from(
        store,
        scenario=scenario,
        slo=slo,
        objective=objective,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        as_json=as_json,
    )


@app.command()
def size(
    model: Annotated[Path, typer.Argument(help="A GGUF file, or a folder with config.json.")],
    *,
    memory_gib: Annotated[
        float | None, typer.Option(help="Memory to fill; left out: this machine's.")
    ] = None,
    context_tokens: Annotated[int, typer.Option(help="Prompt + answer of one sequence.")] = 4096,
    as_json: Json = False,
) -> int:
    """Say what fits: weights, KV cache per token, how many sequences at once."""
    from harness.cli.sizing import print_size

    return print_size(model, memory_gib, context_tokens, as_json=as_json)


@app.command()
def calibrate(
    *,
    routes: Annotated[str, typer.Option(help="Which of http,tls,grpc; left out: all.")] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="One small load, to see that it works; not stored.")
    ] = False,
    client_cpu: Annotated[int | None, typer.Option(help="The client's core.")] = None,
    server_cpu: Annotated[int | None, typer.Option(help="The reference server's core.")] = None,
    as_json: Json = False,
) -> int:
    """Measure how far our own client is off on this machine, and store it (minutes)."""
    from harness.cli.calibrate import calibrate as run_calibration

    return run_calibration(
        routes, quick=quick, as_json=as_json, client_cpu=client_cpu, server_cpu=server_cpu
    )


@app.command(context_settings={**_HYDRA, "help_option_names": []})
def emulate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENGINE [OPTION]...", help="bakeoff emulate --help lists them."),
    ] = None,
) -> int:
    """Serve an engine's API over a model of its timing, for runs without the hardware.

    For instance: bakeoff emulate openai --port 8000 --slots 8 --step-ms 20 --speed 10
    """
    from harness.cli.emulate import emulate as serve_emulated

    return serve_emulated(arguments or [])


@app.command()
def demo() -> int:
    """Measure a small real sweep with the embedded engine and print the verdict."""
    from harness.cli.demo import run_demo

    return run_demo()


@app.command()
def worker(
    *,
    master: Annotated[str, typer.Option(help="HOST:PORT of the run: its load.master_bind.")],
    wait_s: Annotated[float, typer.Option(help="How long the run may take to be there.")] = 60.0,
) -> int:
    """Join a run on another machine and play a share of its load (load.remote_workers).

    Ends with the run; needs the same version of bakeoff, and an address of the server that this
    machine can reach.
    """
    from harness.cli.worker import become_worker

    return become_worker(master, wait_s)


@engines.command("list")
def engines_list(*, as_json: Json = False) -> int:
    """Show every engine, whether its environment is installed, and what it needs."""
    from harness.cli.environments import print_engines

    return print_engines(as_json=as_json)


@engines.command("install")
def engines_install(name: Annotated[str, typer.Argument(help="An engine's name.")]) -> int:
    """Install an engine's environment now instead of on first use."""
    from harness.cli.environments import install

    return install(name)


@engines.command("remove")
def engines_remove(name: Annotated[str, typer.Argument(help="An engine's name.")]) -> int:
    """Remove an engine's environments."""
    from harness.cli.environments import remove

    return remove(name)


def main() -> None:
    """Run the command line; ends the process with an exit code of the table in docs."""
    sys.exit(_exit_code())


def _exit_code() -> int:
    try:
        code = app(standalone_mode=False)
    except BakeoffError as error:
        print(f"bakeoff: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("bakeoff: interrupted", file=sys.stderr)
        return 130
    except typer.Exit as error:
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the outermost edge
        return _usage_or_defect(error)
    return code if isinstance(code, int) else 0


def _usage_or_defect(error: Exception) -> int:
    show = getattr(error, "format_message", None)
    if show is not None:  # typer's own usage errors
        print(f"bakeoff: {show()}; see bakeoff --help", file=sys.stderr)
        return 2
    traceback.print_exc()
    print(
        f"bakeoff: {type(error).__name__}: {error}: this is a defect of bakeoff; please report "
        "the lines above",
        file=sys.stderr,
    )
    return 1
