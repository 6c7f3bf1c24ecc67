"""A tool's report beside the server's log of the very requests that it counted, and the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from peers_process import NoResultError
from peers_reports import Between, Said

from harness.calibrate.point import LATE_LIMIT_S
from harness.calibrate.server.log import OutcomeCode, WrittenLog, order_statistic


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

    @property
    def is_server_late(self) -> bool:
        """Whether the server was no reference: something else had its core, and so the tool's."""
        return self.server_late_p99_s > LATE_LIMIT_S


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
            f" | {row.server_late_p99_s * 1e3:8.2f}{' busy' * row.is_server_late}"
        )
    return lines
