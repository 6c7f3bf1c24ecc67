"""What was asked of each level, what came of it, and how the load client was doing meanwhile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.analysis.calibration import Calibration, calibration_of
from harness.analysis.facts import machine_of
from harness.analysis.model import Achieved, Cell, Summary
from harness.units import MISSING, count, number, percent, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRow:
    """One candidate at one load; `values` as `HEADS`, as text."""

    label: str
    load: str
    values: tuple[str, ...]


HEADS = (
    ("Asked", ""),
    ("Reached", "mean"),
    ("In flight", "peak"),
    ("Lag", "P99"),
    ("TTFT from send", "P50"),
    ("Connecting", "P99"),
    ("Loop late", "P99"),
    ("CPU", "a worker"),
    ("Merged reads", ""),
    ("Unstamped", ""),
    ("Sent again", "requests"),
    ("Timed out", "requests"),
    ("Warm-up", "requests"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSection:
    """The table, and what is known of the client's own error on each machine."""

    rows: tuple[ClientRow, ...]
    calibration: tuple[str, ...]


def client_section(summary: Summary) -> ClientSection:
    """A row for each cell, the mean of what was reached and the worst of the rest."""
    rows = tuple(_row(cell) for cell in summary.cells if cell.achieved)
    return ClientSection(rows=rows, calibration=_calibration(summary))


def _row(cell: Cell) -> ClientRow:
    runs, net = cell.achieved, cell.metrics.get("ttft_net_p50_s")
    limit_s = cell.request_timeout_s
    timed_out = str(cell.n_timed_out)
    if cell.n_timed_out and limit_s is not None:
        timed_out += f" (limit {seconds(limit_s)})"
    values = (
        _asked(runs),
        _reached(runs),
        _peak(runs),
        _worst(runs, lambda one: one.lag_p99_s, seconds),
        seconds(net.value if net else None),
        _worst(runs, lambda one: one.connect_p99_s, seconds),
        _worst(runs, lambda one: one.stall_p99_s, seconds),
        _worst(runs, lambda one: one.cpu_ratio, percent),
        _worst(runs, lambda one: one.merged_ratio, percent),
        _worst(runs, lambda one: one.unstamped_ratio, percent),
        str(sum(one.retried for one in runs)),
        timed_out,
        str(sum(one.warmup for one in runs)),
    )
    return ClientRow(label=cell.candidate.label, load=cell.workload.label, values=values)


def _asked(runs: Sequence[Achieved]) -> str:
    if runs[0].users is not None:
        return f"{runs[0].users} user{'' if runs[0].users == 1 else 's'}"
    rate = _mean([one.rate_rps for one in runs])
    return MISSING if rate is None else f"{number(rate)}/s"


def _reached(runs: Sequence[Achieved]) -> str:
    if runs[0].users is not None:
        return number(_mean([one.users_reached for one in runs]))
    rate = _mean([one.rate_reached_rps for one in runs])
    return MISSING if rate is None else f"{number(rate)}/s"


def _peak(runs: Sequence[Achieved]) -> str:
    known = [one.peak_in_flight for one in runs if one.peak_in_flight is not None]
    return count(max(known, default=None))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _worst(
    runs: Sequence[Achieved],
    of: Callable[[Achieved], float | None],
    text: Callable[[float | None], str],
) -> str:
    known = [value for one in runs if (value := of(one)) is not None]
    return text(max(known)) if known else MISSING


def _calibration(summary: Summary) -> tuple[str, ...]:
    """A sentence for each machine and route that was calibrated."""
    known = [(machine_of(run).label, calibration_of(run)) for run in summary.runs.values()]
    return tuple(dict.fromkeys(_carries(name, one) for name, one in known if one is not None))


def _carries(machine: str, known: Calibration) -> str:
    least = "at least " if known.is_lower_bound else ""
    text = f"{machine}, {known.route}: one worker carries {least}"
    text += f"{number(known.capacity_tokens_per_s)} tokens/s"
    errors = (("TTFT", known.ttft_error_p99_s), ("a chunk gap", known.gap_error_p99_s))
    said = [f"{seconds(value)} of {what}" for what, value in errors if value is not None]
    text += f" with an error of {' and '.join(said)} (P99)" if said else ""
    if known.cpu_us_per_token is not None:
        text += f", at {number(known.cpu_us_per_token)} µs of CPU a token"
    return text + (f"; calibrated {known.measured_at[:10]}." if known.measured_at else ".")
