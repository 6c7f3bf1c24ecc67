"""Which figures the tables show, in which unit, and how a figure reads as text.

The page and the terminal both read this table; definitions are those of
`harness.analysis.metrics.METRICS`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from harness.types import Estimate
from harness.units import MISSING, count, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One figure in a table: `scale` turns the stored value into `unit`."""

    metric: str
    group: str
    label: str
    unit: str
    scale: float = 1.0

    @property
    def title(self) -> str:
        """Group and label, such as `TTFT P90`."""
        return f"{self.group} {self.label}".strip()


COLUMNS = (
    Column(metric="ttft_p50_s", group="TTFT", label="P50", unit="ms", scale=1e3),
    Column(metric="ttft_p90_s", group="TTFT", label="P90", unit="ms", scale=1e3),
    Column(metric="ttft_p99_s", group="TTFT", label="P99", unit="ms", scale=1e3),
    Column(metric="tpot_p50_s", group="TPOT", label="P50", unit="ms", scale=1e3),
    Column(metric="tpot_p90_s", group="TPOT", label="P90", unit="ms", scale=1e3),
    Column(metric="gap_p99_s", group="Chunk gap", label="P99", unit="ms", scale=1e3),
    Column(metric="e2e_p50_s", group="E2E", label="P50", unit="s"),
    Column(metric="e2e_p90_s", group="E2E", label="P90", unit="s"),
    Column(metric="output_tokens_per_s", group="Output", label="", unit="tokens/s"),
    Column(metric="requests_per_s", group="Requests", label="", unit="/s"),
    Column(metric="attainment_ratio", group="SLO", label="attainment", unit="%", scale=100),
    Column(metric="goodput_rps", group="SLO", label="goodput", unit="/s"),
    Column(metric="kv_usage_ratio", group="KV use", label="", unit="%", scale=100),
    Column(metric="waiting", group="Queue", label="", unit="requests"),
    Column(metric="error_ratio", group="Errors", label="", unit="%", scale=100),
    Column(metric="cost_per_mtok", group="Cost", label="", unit="per 1M tokens"),
)


def column_of(metric: str) -> Column:
    """The column of a metric; a plain one for a metric that no table shows."""
    for column in COLUMNS:
        if column.metric == metric:
            return column
    return Column(metric=metric, group=metric, label="", unit="")


def value_text(estimate: Estimate, column: Column) -> str:
    """The figure in its unit; why there is none, if there is none."""
    if estimate.value is None:
        return missing_text(estimate)
    sign = ">= " if estimate.censored else ""
    return sign + number(estimate.value * column.scale)


def interval_text(estimate: Estimate, column: Column) -> str:
    """The 95 % interval, such as `10.1 to 12.3`; empty if there is none."""
    low, high = estimate.ci_low, estimate.ci_high
    if estimate.value is None or low is None or high is None:
        return ""
    return f"{number(low * column.scale)} to {number(high * column.scale)}"


def missing_text(estimate: Estimate) -> str:
    """What a figure that is not there needs: `needs 368, has 120`; `-` if nothing would do."""
    if estimate.needed is None:
        return MISSING
    return f"needs {count(estimate.needed)}, has {count(estimate.n)}"


def used_columns(present: Iterable[str]) -> tuple[Column, ...]:
    """The columns of the metrics that occur, in table order."""
    names = set(present)
    return tuple(column for column in COLUMNS if column.metric in names)
