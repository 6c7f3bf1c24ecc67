"""The metrics as a table: what each is called, its unit, which way is better, and its formula.

Tables, figures, verdicts and the recommender read names, units and directions from here;
`harness.analysis.measure` computes them. Nothing heavy is imported.
"""

from dataclasses import dataclass
from enum import StrEnum

THROUGHPUT_MARGIN = 0.05  # practical margin of a rate (method: verdicts)
LATENCY_MARGIN = 0.10  # and of a latency percentile

NOT_EXPOSED = "not exposed"

_MLPERF = "MLPerf Inference rules: from the scheduled time"
_ORDER = "inverse-CDF order statistic"
_LOST = "failed and cut-off requests count as slower than any"


class Better(StrEnum):
    """Which way is better; NEITHER describes the load or the machine."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class Kind(StrEnum):
    """How a metric is put together from requests, time and runs."""

    PERCENTILE = "percentile"
    RATE = "rate"
    SHARE = "share"
    MEAN = "mean"
    MAXIMUM = "maximum"
    COST = "cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a cell. `unit`: s, ratio, bytes, or a word that follows the number.

    `column` and `p`: the frame's column and the percentile, for PERCENTILE. `margin_ratio`: the
    practical margin of its verdicts; None: it is shown, but no verdict is given on it. `absent`:
    why there is none, where answers came and the figure did not.
    """

    name: str
    title: str
    unit: str
    better: Better
    formula: str
    source: str
    kind: Kind
    column: str = ""
    p: float | None = None
    margin_ratio: float | None = None
    absent: str = ""


_LATENCIES = (
    ("ttft", "TTFT", "first token chunk - due", _MLPERF),
    ("ttft_net", "TTFT from send", "first token chunk - sent", "vLLM bench: its TTFT"),
    ("tpot", "TPOT", "(last token chunk - first) / (N - k), k tokens in the first chunk", "MLPerf"),
    ("e2e", "E2E", "last token chunk - due", _MLPERF),
    ("gap", "Chunk gap", "token chunk - the chunk before it, every gap one sample", "aiperf ICL"),
)
_COMPARED = {"ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_p50_s", "e2e_p50_s", "e2e_p90_s"}


def _percentiles() -> tuple[Metric, ...]:
    return tuple(
        Metric(
            name=f"{stem}_p{percent}_s",
            title=f"{title} P{percent}",
            unit="s",
            better=Better.LOWER,
            formula=f"P{percent} of {formula}; {_ORDER}, {_LOST}",
            source=source,
            kind=Kind.PERCENTILE,
            column="gaps_s" if stem == "gap" else f"{stem}_s",
            p=percent / 100,
            margin_ratio=LATENCY_MARGIN if f"{stem}_p{percent}_s" in _COMPARED else None,
        )
        for stem, title, formula, source in _LATENCIES
        for percent in (50, 90, 99)
    )


def _plain(
    name: str,
    title: str,
    unit: str,
    better: Better,
    kind: Kind,
    formula: str,
    *,
    source: str = "ours",
    margin_ratio: float | None = None,
    absent: str = "",
) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit=unit,
        better=better,
        formula=formula,
        source=source,
        kind=kind,
        margin_ratio=margin_ratio,
        absent=absent,
    )


_LOW, _HIGH, _NONE = Better.LOWER, Better.HIGHER, Better.NEITHER

# fmt: off
METRICS: tuple[Metric, ...] = (
    *_percentiles(),
    Metric(name="lag_p99_s", title="Client lag P99", unit="s", better=_LOW, kind=Kind.PERCENTILE,
           formula=f"P99 of sent - due; {_ORDER}", source="ours", column="lag_s", p=0.99),
    _plain("output_tokens_per_s", "Output", "tokens/s", _HIGH, Kind.RATE,
           "output tokens that arrived in the window / window, failed requests left out",
           margin_ratio=THROUGHPUT_MARGIN),
    _plain("output_tokens_per_s_finished", "Output, finished only", "tokens/s", _HIGH, Kind.RATE,
           "the same, only of answers that were complete when the window ended"),
    _plain("good_tokens_per_s", "Good output", "tokens/s", _HIGH, Kind.RATE,
           "the same, only of requests that meet the SLO", source="DistServe: goodput",
           margin_ratio=THROUGHPUT_MARGIN),
    _plain("requests_per_s", "Requests", "requests/s", _HIGH, Kind.RATE,
           "requests completed in the window / window", margin_ratio=THROUGHPUT_MARGIN),
    _plain("offered_rps", "Offered", "requests/s", _NONE, Kind.RATE,
           "requests due in the window / window"),
    _plain("goodput_rps", "Goodput", "requests/s", _HIGH, Kind.RATE,
           "good requests completed in the window / window", source="DistServe: goodput",
           margin_ratio=THROUGHPUT_MARGIN),
    _plain("attainment_ratio", "SLO attainment", "ratio", _HIGH, Kind.SHARE,
           "good requests / requests due in the window; failed and cut-off ones are not good"),
    _plain("fluidity_ratio", "Fluidity", "ratio", _HIGH, Kind.MEAN,
           "share of tokens by their playback deadline due + TTFT limit + (i - 1) TPOT limit, "
           "mean over requests", source="arXiv 2410.14257"),
    _plain("error_ratio", "Errors", "ratio", _LOW, Kind.SHARE,
           "failed / (failed + ok); cut-off requests are neither"),
    _plain("output_tokens_mean", "Output length", "tokens", _NONE, Kind.MEAN,
           "mean output tokens of ok requests"),
    _plain("input_tokens_mean", "Input length", "tokens", _NONE, Kind.MEAN,
           "mean prompt tokens of ok requests, as the server counts them"),
    _plain("input_plan_ratio", "Input of plan", "ratio", _NONE, Kind.MEAN,
           "prompt tokens / planned input tokens, sums over ok requests"),
    _plain("output_plan_ratio", "Output of plan", "ratio", _NONE, Kind.MEAN,
           "output tokens / planned output tokens, sums over ok requests"),
    _plain("tokens_per_chunk", "Tokens a chunk", "tokens", _NONE, Kind.MEAN,
           "output tokens / token chunks of ok requests"),
    _plain("kv_usage_ratio", "KV use", "ratio", _NONE, Kind.MEAN,
           "mean share of the KV pool in use, over the window's scrapes", source="engine metrics",
           absent=NOT_EXPOSED),
    _plain("kv_usage_max_ratio", "KV use, peak", "ratio", _NONE, Kind.MAXIMUM,
           "highest share of the KV pool in use in the window", source="engine metrics",
           absent=NOT_EXPOSED),
    _plain("kv_usage_derived_ratio", "KV use, ours", "ratio", _NONE, Kind.MEAN,
           "mean of prompt and generated tokens of the requests that run / tokens the KV cache "
           "holds; from our stamps, first come first served", absent="capacity not exposed"),
    _plain("kv_usage_derived_max_ratio", "KV use, ours, peak", "ratio", _NONE, Kind.MAXIMUM,
           "the highest of the same, looked at twice a second"),
    _plain("kv_usage_difference_ratio", "KV use, ours - engine's", "ratio", _NONE, Kind.MEAN,
           "our mean share of the KV cache in use - the engine's, in shares of the cache"),
    _plain("kv_tokens", "KV tokens", "tokens", _NONE, Kind.MEAN,
           "mean prompt and generated tokens of the requests that run"),
    _plain("waiting", "Queue", "requests", _LOW, Kind.MEAN,
           "mean requests waiting in the engine, over the window's scrapes",
           source="engine metrics",
           absent=NOT_EXPOSED),
    _plain("waiting_max", "Queue, peak", "requests", _LOW, Kind.MAXIMUM,
           "most requests waiting in the engine in the window", source="engine metrics",
           absent=NOT_EXPOSED),
    _plain("preemptions", "Preemptions", "", _LOW, Kind.MAXIMUM,
           "rise of the engine's counter over the window", source="engine metrics",
           absent=NOT_EXPOSED),
    _plain("engine_rss_bytes", "Engine memory, peak", "bytes", _LOW, Kind.MAXIMUM,
           "highest resident memory of the engine's processes in the window"),
    _plain("gpu_memory_bytes", "GPU memory, peak", "bytes", _LOW, Kind.MAXIMUM,
           "highest GPU memory in use in the window", source="NVML"),
    _plain("gpu_util_ratio", "GPU use", "ratio", _NONE, Kind.MEAN,
           "mean share of time in which a kernel ran, over the watched GPUs", source="NVML"),
    _plain("gpu_imbalance_ratio", "GPU imbalance", "ratio", _LOW, Kind.MEAN,
           "(max - min) / mean of the utilisation of the GPUs that hold a part of the model",
           source="NVML"),
    _plain("gpu_power_w", "GPU power", "W", _LOW, Kind.MEAN,
           "mean power of the watched GPUs in sum", source="NVML"),
    _plain("gpu_sm_clock_mhz", "SM clock", "MHz", _NONE, Kind.MEAN,
           "mean of the lowest SM clock of the watched GPUs", source="NVML"),
    _plain("gpu_temperature_c", "GPU temperature, peak", "°C", _NONE, Kind.MAXIMUM,
           "highest temperature of a watched GPU in the window", source="NVML"),
    _plain("gpu_throttled_ratio", "GPU throttled", "ratio", _LOW, Kind.MEAN,
           "share of the samples in which heat, power or hardware held clocks back",
           source="NVML"),
    _plain("energy_per_token_j", "Energy", "J/token", _LOW, Kind.MEAN,
           "rise of the GPUs' energy counters / output tokens, over the window", source="NVML"),
    _plain("time_to_ready_s", "Time to ready", "s", _LOW, Kind.MEAN,
           "from the start of the engine's process to its first answer"),
    _plain("cost_per_mtok", "Cost", "per 1M tokens", _LOW, Kind.COST,
           "price per hour / (3600 x output tokens/s) x 1e6"),
)
# fmt: on

BY_NAME = {metric.name: metric for metric in METRICS}
