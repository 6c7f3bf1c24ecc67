"""A tool's report beside the server's log of the very requests that it counted, and the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from peers_process import NoResultError
from peers_reports import Between, Said

from harness.calibrate.point import LATE_LIMIT_S
from harness.calibrate.server.log import OutcomeCode, WrittenLog, order_statistic

_OTHERS_LIMIT_RATIO = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A tool's figures and the server's for the same requests, in seconds.

    `others_ratio`: the share of the tool's core that others used, 0 to 1.
    """

    tool: str
    version: str
    said: Said
    true_ttft_p50_s: float
    true_ttft_p99_s: float
    true_between_p99_s: float
    server_late_p99_s: float
    others_ratio: float

    @property
    def is_busy(self) -> bool:
        """Whether others had either core, so that this is not the tool's own error."""
        return self.server_late_p99_s > LATE_LIMIT_S or self.others_ratio > _OTHERS_LIMIT_RATIO


def compare(tool: str, version: str, said: Said, log: WrittenLog, *, others_ratio: float) -> Row:
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
        others_ratio=others_ratio,
    )


def _trio(said_s: float, true_s: float) -> str:
    return f"{said_s * 1e3:8.1f} {true_s * 1e3:7.1f} {(said_s - true_s) * 1e3:+8.1f}"


def table(rows: Sequence[Row]) -> list[str]:
    """The lines of the table, in ms; `error` is what the tool says minus the truth."""
    trio = f"{'said':>8s} {'true':>7s} {'error':>8s}"
    columns = f"{'tool':12s} {'version':11s} {'requests':>8s} {'failed':>6s}"
    blank = " " * len(columns)
    head = f"{blank} | {'TTFT P50':^25s} | {'TTFT P99':^25s} | {'between tokens P99':^30s} | "
    lines = [
        f"{head} server  others",
        f"{columns} | {trio} | {trio} | {trio} {'of':4s} | late P99 on core",
    ]
    for row in rows:
        said = row.said
        lines.append(
            f"{row.tool:12s} {row.version:11s} {said.requests:8d} {said.failed:6d}"
            f" | {_trio(said.ttft_p50_s, row.true_ttft_p50_s)}"
            f" | {_trio(said.ttft_p99_s, row.true_ttft_p99_s)}"
            f" | {_trio(said.between_p99_s, row.true_between_p99_s)} {said.between:4s}"
            f" | {row.server_late_p99_s * 1e3:8.2f} {row.others_ratio:7.1%}{' busy' * row.is_busy}"
        )
    return lines
