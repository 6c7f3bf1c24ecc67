"""One run: its levels, its search, and everything about it that is not a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from harness.types.engines import Capabilities, Determinism, EngineIdentity, LogFacts, StartTimes
from harness.types.verdicts import Doubt


class Outcome(StrEnum):
    """How a run (one server start with all its levels) ended."""

    OK = "ok"
    INVALID = "invalid"  # measured, but not to be trusted: too many errors, client late
    NOT_READY = "not_ready"
    DIED = "died"
    FAILED = "failed"  # could not be prepared or measured; `diagnosis` says why
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """What the load client saw of itself during one level; summed or worst over its workers.

    `cpu_s`: CPU time of its processes. `stall_p99_s`, `stall_max_s`: how late its event loop
    came to a timer of 10 ms. `unstamped_reads`: reads without the kernel's stamp.
    `clock_step_s`: the largest jump of the wall clock against the monotonic one.
    `peak_in_flight`: most requests under way at once.
    """

    cpu_s: float | None = None
    stall_p99_s: float | None = None
    stall_max_s: float | None = None
    connects: int = 0
    retries: int = 0
    unstamped_reads: int = 0
    clock_step_s: float = 0.0
    peak_in_flight: int = 0
    workers: int = 1
    workers_lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of a run as it was played; times on the run's clock, all in seconds.

    `window_start_s` to `window_end_s`: requests due in it are measured. `drained_s`: when the
    last of them had ended or was cut off. `is_cut`: it did not come to its own end (the load
    process died, or a search had seen enough). `trace`: what was done to a replayed trace.
    `plan_sha256`: what makes its requests and due times, however many of them are played.
    """

    index: int
    name: str
    shape: str
    users: int | None = None
    rate_rps: float | None = None
    window_start_s: float = 0.0
    window_end_s: float = 0.0
    drained_s: float = 0.0
    planned: int = 0
    exhausted: bool = False
    is_cut: bool = False
    think_s: float = 0.0
    trace: Mapping[str, Any] | None = None
    plan_sha256: str | None = None
    client: ClientFacts | None = None


class ProbeEnd(StrEnum):
    """Why a probe of a search ended."""

    DECIDED = "decided"  # the sequential test had seen enough
    DIVERGED = "diverged"  # queue and waits grew without end
    UNDECIDED = "undecided"  # its time or its requests ran out: counts as failed
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One rate that a search tried. `level`: its row among the run's levels.

    `n`: requests that counted, of which `good` met the SLO.
    """

    rate_rps: float
    level: int
    has_passed: bool
    end: ProbeEnd
    n: int
    good: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found on one server start, or what a fresh run made of its answer.

    `low_rps`: highest rate that passed, `high_rps`: lowest that failed; None: there was none.
    `burst_rps`: requests a second with many users at once, `floor_s`: end-to-end time of one
    request alone. `confirms`: the run id of the search whose rates were tried again.
    `slo`, `attainment_ratio`, `low_ratio`, `error_ratio`: what was tested, at each probe.
    """

    slo: str
    attainment_ratio: float
    low_ratio: float
    error_ratio: float
    probes: tuple[Probe, ...] = ()
    low_rps: float | None = None
    high_rps: float | None = None
    floor_s: float | None = None
    burst_rps: float | None = None
    confirms: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """`run.json`: everything about a run that is not a table."""

    schema_version: int
    run_id: str
    engine: str
    model: str
    emulated: bool
    outcome: Outcome
    started_at: str
    config: Mapping[str, Any]
    facts: Mapping[str, Any]
    plan_hash: str
    content_hash: str
    block: int
    levels: tuple[Level, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    identity: EngineIdentity = field(default_factory=EngineIdentity)
    capabilities: Capabilities | None = None
    time_to_ready_s: float | None = None
    start: StartTimes = field(default_factory=StartTimes)
    log: LogFacts = field(default_factory=LogFacts)
    determinism: Determinism | None = None
    search: SearchResult | None = None
    diagnosis: str | None = None
    ended_at: str | None = None
