"""Which figures the tables show, in which unit, and how a figure reads as text.

The page and the terminal both read this table; definitions are those of
`harness.analysis.metrics.METRICS`.
"""

from dataclasses import dataclass, replace

from harness.analysis.metrics import BY_NAME
from harness.analysis.model import Summary
from harness.types import Estimate
from harness.units import MISSING, count, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One figure in a table: `scale` turns the stored value into `unit`.

    `words`: what a sentence calls it, if not by group and label.
    """

    metric: str
    group: str
    label: str
    unit: str
    scale: float = 1.0
    words: str = ""

    @property
    def title(self) -> str:
        """What a sentence or a table of its own calls it, such as `TTFT P90`."""
        return self.words or f"{self.group} {self.label}".strip()


COST = "cost_per_mtok"
_MIB = 1 / 1024**2

COLUMNS = (
    Column(metric="ttft_p50_s", group="TTFT", label="P50", unit="ms", scale=1e3),
    Column(metric="ttft_p90_s", group="TTFT", label="P90", unit="ms", scale=1e3),
    Column(metric="ttft_p99_s", group="TTFT", label="P99", unit="ms", scale=1e3),
    Column(metric="tpot_p50_s", group="TPOT", label="P50", unit="ms", scale=1e3),
    Column(metric="tpot_p90_s", group="TPOT", label="P90", unit="ms", scale=1e3),
    Column(metric="tpot_p99_s", group="TPOT", label="P99", unit="ms", scale=1e3),
    Column(metric="gap_p50_s", group="Chunk gap", label="P50", unit="ms", scale=1e3),
    Column(metric="gap_p99_s", group="Chunk gap", label="P99", unit="ms", scale=1e3),
    Column(metric="e2e_p50_s", group="E2E", label="P50", unit="s"),
    Column(metric="e2e_p90_s", group="E2E", label="P90", unit="s"),
    Column(
        metric="output_tokens_per_s",
        group="Throughput",
        label="output",
        unit="tokens/s",
        words="output tokens/s",
    ),
    Column(
        metric="requests_per_s",
        group="Throughput",
        label="requests",
        unit="/s",
        words="requests/s",
    ),
    Column(metric="attainment_ratio", group="SLO", label="attainment", unit="%", scale=100),
    Column(metric="goodput_rps", group="SLO", label="goodput", unit="/s", words="goodput"),
    Column(metric="error_ratio", group="Errors", label="", unit="%", scale=100),
    Column(metric="kv_usage_ratio", group="KV use", label="mean", unit="%", scale=100),
    Column(metric="kv_usage_max_ratio", group="KV use", label="peak", unit="%", scale=100),
    Column(
        metric="kv_usage_derived_ratio", group="KV use, ours", label="mean", unit="%", scale=100
    ),
    Column(
        metric="kv_usage_derived_max_ratio", group="KV use, ours", label="peak", unit="%", scale=100
    ),
    Column(
        metric="kv_usage_difference_ratio",
        group="KV use, ours",
        label="ours - engine's",
        unit="% points",
        scale=100,
    ),
    Column(metric="waiting", group="Queue", label="mean", unit="requests"),
    Column(metric="waiting_max", group="Queue", label="peak", unit="requests"),
    Column(metric="engine_rss_bytes", group="Memory", label="engine", unit="MiB", scale=_MIB),
    Column(metric="gpu_memory_bytes", group="Memory", label="GPU", unit="MiB", scale=_MIB),
    Column(metric="gpu_util_ratio", group="GPU", label="use", unit="%", scale=100),
    Column(metric="gpu_imbalance_ratio", group="GPU", label="imbalance", unit="%", scale=100),
    Column(metric="gpu_throttled_ratio", group="GPU", label="throttled", unit="%", scale=100),
    Column(metric="gpu_sm_clock_mhz", group="GPU", label="SM clock", unit="MHz"),
    Column(metric="gpu_temperature_c", group="GPU", label="peak temperature", unit="°C"),
    Column(metric="gpu_power_w", group="GPU", label="power", unit="W"),
    Column(metric="energy_per_token_j", group="Energy", label="output", unit="J/token"),
    Column(metric=COST, group="Cost", label="output", unit="per 1M tokens"),
)


def column_of(metric: str) -> Column:
    """The column of a metric; made from its title and unit for one that no table shows."""
    for column in COLUMNS:
        if column.metric == metric:
            return column
    known = BY_NAME.get(metric)
    if known is None:
        return Column(metric=metric, group=metric, label="", unit="")
    if known.unit == "ratio":
        return Column(metric=metric, group=known.title, label="", unit="%", scale=100)
    return Column(metric=metric, group=known.title, label="", unit=known.unit)


def value_text(estimate: Estimate, column: Column) -> str:
    """The figure in its unit; why there is none, if there is none."""
    if estimate.value is None:
        return missing_text(estimate)
    sign = ">= " if estimate.censored else ""
    return sign + number(estimate.value * column.scale)


def interval_text(estimate: Estimate, column: Column) -> str:
    """The 95 % interval, low and high parted by a dash; empty if it is none or a point."""
    low, high = estimate.ci_low, estimate.ci_high
    if estimate.value is None or low is None or high is None:
        return ""
    ends = number(low * column.scale), number(high * column.scale)
    return "" if ends[0] == ends[1] else f"{ends[0]}–{ends[1]}"


def missing_text(estimate: Estimate) -> str:
    """What a figure that is not there needs: `needs 368, has 120`; `-` if nothing would do."""
    if estimate.reason:
        return f"{MISSING} ({estimate.reason})"
    if estimate.needed is None:
        return MISSING
    return f"needs {count(estimate.needed)}, has {count(estimate.n)}"


def used_columns(summary: Summary) -> tuple[Column, ...]:
    """The columns of the metrics that any cell has, in table order; cost in its currency."""
    names = {name for cell in summary.cells for name, e in cell.metrics.items() if _is_said(e)}
    currencies = {cell.candidate.currency or "" for cell in summary.cells} - {""}
    currency = currencies.pop() if len(currencies) == 1 else ""
    return tuple(
        replace(column, unit=f"{currency} {column.unit}".strip())
        if column.metric == COST
        else column
        for column in COLUMNS
        if column.metric in names
    )


def _is_said(estimate: Estimate) -> bool:
    """A percentile that is only short of samples is said; what nobody measured is not."""
    is_short = estimate.needed is not None or bool(estimate.reason)
    return estimate.value is not None or (is_short and estimate.n > 0)
