"""`size`: what fits into memory, before anything is started."""

from pathlib import Path

import msgspec
import psutil
from rich.console import Console
from rich.table import Table

from harness.analysis.memory import MemoryPlan
from harness.analysis.memory import size as plan_memory
from harness.errors import ConfigError, NoAnswerError
from harness.units import byte_size, count, number

_GIB = 1024**3


def print_size(model: Path, memory_gib: float | None, context_tokens: int, *, as_json: bool) -> int:
    """`bakeoff size`; exit 7 if not even one sequence fits."""
    if memory_gib is not None and not memory_gib > 0:
        raise ConfigError(f"--memory-gib={memory_gib}: must be > 0 GiB")
    if context_tokens < 1:
        raise ConfigError(f"--context-tokens={context_tokens}: must be an integer >= 1")
    memory_bytes = int(memory_gib * _GIB) if memory_gib else psutil.virtual_memory().total
    fit = plan_memory(model, memory_bytes=memory_bytes, context_tokens=context_tokens)
    if as_json:
        print(msgspec.json.encode(fit).decode())
    else:
        _print_plan(Console(markup=False, highlight=False), fit)
    return 0 if fit.sequences is None or fit.sequences > 0 else NoAnswerError.exit_code


def _print_plan(console: Console, fit: MemoryPlan) -> None:
    if fit.sequences is None:
        console.print(f"{fit.model}: how many sequences fit cannot be said.")
    else:
        console.print(
            f"{fit.model}: {count(fit.sequences)} sequences of {count(fit.context_tokens)} tokens "
            f"fit into {byte_size(fit.memory_bytes)}.",
            highlight=False,
        )
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("weights", byte_size(fit.weights_bytes))
    table.add_row("KV cache per token", f"{number(fit.kv_bytes_per_token)} B")
    table.add_row("KV cache per sequence", byte_size(fit.sequence_bytes))
    table.add_row("memory used at most", f"{fit.memory_fraction:.0%}")
    table.add_row("left for the KV cache", byte_size(fit.pool_bytes))
    console.print(table)
    for note in fit.notes:
        console.print(f"note: {note}")
