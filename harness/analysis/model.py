"""What the analysis hands to the report and the recommender: plain values, no frames."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.analysis.agreement import TriedRate
from harness.analysis.scenario_measures.table import Measure
from harness.types import Doubt, Estimate, Outcome, Provenance, RunInfo, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What is chosen among: an engine with its settings and model, on one machine.

    `key` is equal for equal configurations (load, scenario, seed, block and store left out).
    `label` names the engine and only those settings that differ within the summary.
    """

    key: str
    engine: str
    label: str
    model: str
    hardware: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    price_per_hour: float | None = None
    currency: str | None = None
    price_source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What was asked of a candidate: a scenario with its lengths, at one level of load."""

    key: str
    scenario: str
    level: str
    closed: bool
    input_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    users: int | None = None
    rate_rps: float | None = None

    @property
    def label(self) -> str:
        """Scenario and level, such as `chat, users=8`."""
        return f"{self.scenario}, {self.level}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Achieved:
    """One level of one run. None where it is not asked for or was not known.

    `users`: asked for; `users_reached`: mean users that had a request under way, from its first
    to its last byte, or were thinking. `rate_rps`: due in the window over its length;
    `rate_reached_rps`: of these, sent in it. `connected_ratio`: share of requests that had to
    connect; `connect_p99_s`: how long that took. `cpu_ratio`: CPU of the client over the level,
    of one core a worker. `unstamped_ratio`, `merged_ratio`: share of all reads. `retried`:
    requests sent more than once after a 429; `rate_limited`: those that ended with one.
    `capacity_ratio`: output over the calibrated capacity.
    """

    users: int | None = None
    users_reached: float | None = None
    peak_in_flight: int | None = None
    rate_rps: float | None = None
    rate_reached_rps: float | None = None
    lag_mean_s: float | None = None
    lag_p99_s: float | None = None
    lag_max_s: float | None = None
    connected_ratio: float | None = None
    connect_p99_s: float | None = None
    cpu_ratio: float | None = None
    stall_p99_s: float | None = None
    clock_step_s: float | None = None
    unstamped_ratio: float | None = None
    merged_ratio: float | None = None
    retried: int = 0
    rate_limited: int = 0
    timed_out: int = 0
    warmup: int = 0
    workers: int = 1
    capacity_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One candidate at one workload over all its runs (blocks).

    `metrics`: name (of `harness.analysis.metrics.METRICS`) to the estimate over all runs.
    `per_run`: the same figure in each run, aligned with `run_ids` and `blocks`; None where the
    run does not carry it. `sweeps`: the sweep of each run; blocks are paired within a sweep.
    `n` = `n_ok` + `n_failed` + `n_censored`, measured phase only; `n_timed_out` of the failed had
    no end after `request_timeout_s`. `achieved`: what each run was asked and what came of it.
    """

    candidate: Candidate
    workload: Workload
    run_ids: tuple[str, ...]
    blocks: tuple[int, ...]
    n: int
    n_ok: int
    n_failed: int
    n_censored: int
    metrics: Mapping[str, Estimate]
    per_run: Mapping[str, tuple[float | None, ...]]
    doubts: tuple[Doubt, ...] = ()
    emulated: bool = False
    measured_at: str = ""
    sweeps: tuple[str, ...] = ()
    n_timed_out: int = 0
    request_timeout_s: float | None = None
    achieved: tuple[Achieved, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRate:
    """One search with the fresh runs that tried its answer again.

    `low_rps`: highest rate that passed in all runs that tried it; `high_rps`: lowest above it
    that failed in all. None: there is none. `low_confirmed`, `high_confirmed`: in how many of
    `fresh_runs`, of which `fresh_wanted` had to agree. `is_noisy`: a rate passed although a lower
    one failed, or runs disagreed.
    """

    candidate: Candidate
    scenario: str
    slo: str
    attainment_ratio: float
    run_ids: tuple[str, ...]
    block: int
    low_rps: float | None
    high_rps: float | None
    low_confirmed: int
    high_confirmed: int
    fresh_runs: int
    fresh_wanted: int
    is_noisy: bool
    tried: tuple[TriedRate, ...]
    emulated: bool = False

    @property
    def is_confirmed(self) -> bool:
        """Whether as many fresh runs as were asked for agree with each end."""
        return 0 < self.fresh_wanted <= min(self.low_confirmed, self.high_confirmed)


@dataclass(frozen=True, slots=True)
class Amount:
    """Some memory. `source`: where the figure is from, in words; `value_bytes` None: not exposed.

    MEASURED: by us or by the engine itself. DERIVED: follows from other figures.
    """

    source: str = ""
    value_bytes: int | None = None
    provenance: Provenance = Provenance.NOT_EXPOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """Where a candidate's memory goes, over its runs.

    `kv_metric`: whether it tells its KV use itself. `gpu_peak`: in use on the watched GPUs, by
    whomever; `rss_peak`: resident memory of the engine's processes.
    """

    candidate: Candidate
    run_ids: tuple[str, ...]
    weights: Amount
    kv_pool: Amount
    kv_capacity_tokens: int | None
    kv_metric: Provenance
    gpu_peak: Amount
    rss_peak: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A run that gave no cell; the failure is data too."""

    run_id: str
    candidate: Candidate
    scenario: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything a reader of a sweep needs, computed once.

    `verdicts` compare each pair of candidates at each workload on each compared metric.
    `runs` are the run.json contents behind it, by run id. `measures`: what the scenarios are
    about beyond the standard metrics, of each candidate. `found`: what searches came to.
    `memory`: where the memory of each candidate with figures goes.
    """

    title: str
    cells: tuple[Cell, ...]
    verdicts: tuple[Verdict, ...]
    failed: tuple[FailedRun, ...]
    doubts: tuple[Doubt, ...]
    runs: Mapping[str, RunInfo]
    measures: tuple[Measure, ...] = ()
    found: tuple[FoundRate, ...] = ()
    memory: tuple[EngineMemory, ...] = ()

    @property
    def is_emulated(self) -> bool:
        """Whether any figure comes from an emulator."""
        return any(c.emulated for c in self.cells) or any(f.emulated for f in self.found)

    @property
    def n(self) -> int:
        """Measured requests, those of searches among them."""
        return sum(c.n for c in self.cells) + sum(t.n for f in self.found for t in f.tried)
