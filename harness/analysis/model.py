"""What the analysis hands to the report and the recommender: plain values, no frames."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.types import Doubt, Estimate, Outcome, RunInfo, Verdict


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
class Cell:
    """One candidate at one workload over all its runs (blocks).

    `metrics`: name (of `harness.analysis.metrics.METRICS`) to the estimate over all runs.
    `per_run`: the same figure in each run, aligned with `run_ids` and `blocks`; None where the
    run does not carry it. `sweeps`: the sweep of each run; blocks are paired within a sweep.
    `n` = `n_ok` + `n_failed` + `n_censored`, measured phase only.
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
    `runs` are the run.json contents behind it, by run id.
    """

    title: str
    cells: tuple[Cell, ...]
    verdicts: tuple[Verdict, ...]
    failed: tuple[FailedRun, ...]
    doubts: tuple[Doubt, ...]
    runs: Mapping[str, RunInfo]
