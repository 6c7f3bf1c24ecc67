"""What an engine and its machine say of themselves."""

from dataclasses import dataclass
from enum import StrEnum

from harness.types.requests import Wire


class Provenance(StrEnum):
    """Where an engine figure comes from."""

    MEASURED = "measured"
    DERIVED = "derived"
    NOT_EXPOSED = "not_exposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """What an engine said of itself at one moment; one row of `engine.parquet`.

    Counters are totals since the engine's start. `kv_usage_ratio` is 0..1 of the pool.
    """

    t_s: float = 0.0
    running: float | None = None
    waiting: float | None = None
    kv_usage_ratio: float | None = None
    kv_provenance: Provenance = Provenance.NOT_EXPOSED
    prefix_cached_tokens_total: float | None = None
    prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    preemptions_total: float | None = None
    draft_tokens_total: float | None = None
    accepted_tokens_total: float | None = None
    scrape_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """What the machine did at one moment; one row of `host.parquet`.

    CPU ratios are of one core (2.0 = two cores busy); `cpu_total_ratio` is 0..1 of all cores.
    GPU figures are of the watched GPUs: mean utilisation, memory and power in sum, the lowest
    clock, the highest temperature. `gpu_energy_j`, `gpu_ecc_*_total`: counters since the driver
    was loaded, in sum; the ECC ones are read every few seconds only. `gpu_throttle`: why clocks
    were held back, words joined by commas; empty: they were not. `gpu_each_*`: one value a GPU.
    """

    t_s: float
    cpu_total_ratio: float
    engine_cpu_ratio: float | None = None
    client_cpu_ratio: float | None = None
    engine_rss_bytes: int | None = None
    client_rss_bytes: int | None = None
    gpu_util_ratio: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_power_w: float | None = None
    gpu_energy_j: float | None = None
    gpu_sm_clock_mhz: float | None = None
    gpu_temperature_c: float | None = None
    gpu_throttle: str | None = None
    gpu_ecc_corrected_total: int | None = None
    gpu_ecc_uncorrected_total: int | None = None
    gpu_each_util_ratio: tuple[float | None, ...] | None = None
    gpu_each_memory_bytes: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineIdentity:
    """What the running engine says it is; each a value or None.

    `is_emulated`: it says that it is an emulator; its figures are never evidence.
    """

    version: str | None = None
    model: str | None = None
    max_model_len_tokens: int | None = None
    max_running: int | None = None
    kv_capacity_tokens: int | None = None
    is_emulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do over the measured route; the plan, contract and report read it.

    `prefix_cache_off`: it can be run without reuse of prompt beginnings.
    """

    forced_length: bool
    token_id_prompts: bool
    usage_in_stream: bool
    kv_metric: Provenance
    prefix_cache_off: bool
    tokenize_route: bool
    metrics: bool
    wire: Wire = Wire.HTTP


@dataclass(frozen=True, slots=True, kw_only=True)
class Determinism:
    """How many different texts one request had: `alone`, in a `crowd` of itself, `together`.

    `requests`: how often it was sent each way. `failed`: answers of both that were none.
    """

    requests: int
    output_tokens: int
    alone: int
    crowd: int
    together: int
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """What it took until the engine answered; each a value or None where it did not happen.

    `install_s`: making its environment, which later starts find made. `up_s`: from the start to
    the first good answer of its health route. `first_answer_s`: from there to the end of the
    first real answer. Loading and compiling lie within these and are in `LogFacts`.
    """

    install_s: float | None = None
    up_s: float | None = None
    first_answer_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What an engine's log says of its start; each a value or None.

    `load_s`: reading the weights; `compile_s`: profiling, compiling, capturing graphs.
    `weights_bytes`, `kv_bytes`: what it says that these take. `kv_capacity_tokens`: of its cache.
    """

    load_s: float | None = None
    compile_s: float | None = None
    weights_bytes: int | None = None
    kv_bytes: int | None = None
    kv_capacity_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A known failure read from an engine's log: the engine's reason and what to change."""

    reason: str
    advice: str
