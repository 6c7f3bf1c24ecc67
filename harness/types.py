"""The types that travel between the rooms: frozen values, units in their names.

Times are float seconds on the run's own monotonic clock, whose zero is the start of the load
(`RunInfo.started_at` says when that was on the wall clock). Missing is None, never 0.
This module imports nothing of ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """Where in a level a request belongs, judged by its due time."""

    WARMUP = "warmup"
    MEASURE = "measure"
    DRAIN = "drain"


class TokensSource(StrEnum):
    """Who counted the output tokens: the server, the model's tokenizer, or only the chunks."""

    USAGE = "usage"
    TOKENIZER = "tokenizer"
    CHUNKS = "chunks"


class ErrorClass(StrEnum):
    """Why a request failed; a failed request is a Record, never an exception."""

    STREAM_ERROR = "stream_error"  # an error event inside a 200 stream, or garbage in it
    ERROR_BODY = "error_body"  # HTTP 200 whose body is an error object
    INCOMPLETE_STREAM = "incomplete_stream"  # ended cleanly without finish_reason or [DONE]
    CONNECTION_ERROR = "connection_error"  # refused, reset, or closed in the middle
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    RATE_LIMITED = "rate_limited"  # HTTP 429
    REDIRECT = "redirect"  # refused: it would time another server
    TIMEOUT = "timeout"  # load.request_timeout_s passed
    WORKER_LOST = "worker_lost"
    CLOCK_ERROR = "clock_error"


class ChunkKind(StrEnum):
    """What one decoded piece of an answer is. TEXT, REASONING and TOOL carry tokens."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL = "tool"
    USAGE = "usage"
    END = "end"
    ERROR = "error"


class Clock(StrEnum):
    """Which clock stamped a request's reads: the kernel's, or ours after a read without one."""

    KERNEL = "kernel"
    USER = "user"


class Outcome(StrEnum):
    """How a run (one server start with all its levels) ended."""

    OK = "ok"
    INVALID = "invalid"  # measured, but not to be trusted: too many errors, client late
    NOT_READY = "not_ready"
    DIED = "died"
    FAILED = "failed"  # could not be prepared or measured; `diagnosis` says why
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One thing said before in a session. `role`: `user`, `assistant` or `system`."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of the plan: a pure function of (config, seed, index).

    `due_s` is relative to the start of its level; None in a closed load, where a request is due
    when its user's last answer has ended.
    """

    index: int
    prompt: str
    input_tokens: int
    max_output_tokens: int
    due_s: float | None = None
    input_tokens_exact: bool = True
    temperature: float = 0.0
    seed: int = 0
    group: str | None = None
    session: int | None = None
    turn: int | None = None
    history: tuple[Turn, ...] = ()
    prefix_tokens: int = 0
    lora: str | None = None


class Wire(StrEnum):
    """How a call travels: an HTTP/1.1 request, or a gRPC call over HTTP/2."""

    HTTP = "http"
    GRPC = "grpc"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """One request without host and port. `headers` come beside those the client adds.

    With `wire` GRPC, `path` is `/package.Service/Method` and `body` one protobuf message, without
    gRPC's frame of five bytes.
    """

    method: str = "POST"
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    wire: Wire = Wire.HTTP


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """Status and headers of an answer; header names are lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One meaning found in an answer's bytes, in order.

    A *token chunk* has kind TEXT, REASONING or TOOL with non-empty text, or `total_tokens` above
    the chunk before it. `total_tokens`: the running count of output tokens if the server says it
    here. A chunk may carry text and `finish_reason` at once. `draft_tokens`, `accepted_tokens`:
    of speculative decoding, over the whole answer, where the server tells.
    """

    kind: ChunkKind
    text: str = ""
    total_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    finish_reason: str | None = None
    error: ErrorClass | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What happened to one request; one row of `requests.parquet`, columns named as the fields.

    `chunk_s`: arrival of each token chunk, ascending, shape (n_chunks,). `chunk_tokens`: tokens
    in each, None where the server does not say. `sent_s`: the last request byte handed over.
    `stream_end_s`: end of the answer, after usage and [DONE]. `censored_s`: its age (from due)
    when the drain was cut off; such a request is neither ok nor failed. `late_s`: the largest
    time between a byte's arrival and our reading it. `merged_reads`: reads that held several
    token chunks, which share one stamp. `group` to `lora`: as in `Request`. `worker`: which load
    worker played it. `attempts`: how often it was sent; `retry_after_s`: the wait that the last
    429 asked for. `draft_tokens`, `accepted_tokens`: of speculative decoding.
    """

    request_id: str
    index: int
    level: int
    block: int
    phase: Phase
    due_s: float
    connect_s: float | None
    sent_s: float | None
    chunk_s: tuple[float, ...]
    chunk_tokens: tuple[int | None, ...]
    stream_end_s: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    tokens_source: TokensSource | None
    planned_input_tokens: int
    planned_output_tokens: int
    clock: Clock
    headers_s: float | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None
    error: ErrorClass | None = None
    error_message: str | None = None
    http_status: int | None = None
    censored_s: float | None = None
    user: int | None = None
    reads: int = 0
    merged_reads: int = 0
    late_s: float | None = None
    text_sha256: str | None = None
    group: str | None = None
    session: int | None = None
    turn: int | None = None
    prefix_tokens: int | None = None
    lora: str | None = None
    worker: int | None = None
    attempts: int = 1
    retry_after_s: float | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None

    @property
    def is_ok(self) -> bool:
        """Completed without error and not cut off."""
        return self.error is None and self.censored_s is None


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
    """What an engine can do over the measured route; the plan, contract and report read it."""

    forced_length: bool
    token_id_prompts: bool
    usage_in_stream: bool
    kv_metric: Provenance
    prefix_cache_off: bool
    tokenize_route: bool
    metrics: bool
    wire: Wire = Wire.HTTP


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A known failure read from an engine's log: the engine's reason and what to change."""

    reason: str
    advice: str


class Severity(StrEnum):
    """How much a doubt weighs: NOTE informs, WARN weakens, INVALID forbids the use."""

    NOTE = "note"
    WARN = "warn"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A reason to distrust a result, as a value, with what to do next."""

    code: str
    what: str
    advice: str
    severity: Severity = Severity.WARN
    where: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure with its interval (95 % unless said otherwise). None: the sample is too small.

    `n`: samples; `n_eff`: after autocorrelation; `needed`: how many would carry the figure.
    `reason`: why there is none, where more samples would not help.
    """

    value: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int = 0
    n_eff: float | None = None
    needed: int | None = None
    censored: bool = False
    reason: str = ""


class VerdictKind(StrEnum):
    """What a comparison may say; BETTER means that the first of the pair is better."""

    BETTER = "BETTER"
    WORSE = "WORSE"
    EQUIVALENT = "EQUIVALENT"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_COMPARABLE = "NOT_COMPARABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A against B on one metric at one workload, from paired blocks.

    `ratio`: A over B, `ci_low`..`ci_high` its 95 % interval. `runs_needed`: blocks an arm that
    would settle an INCONCLUSIVE at the margin; None if that cannot be said.
    """

    kind: VerdictKind
    metric: str
    a: str
    b: str
    workload: str
    ratio: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    blocks: int = 0
    runs_needed: int | None = None
    reason: str = ""


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
    search: SearchResult | None = None
    diagnosis: str | None = None
    ended_at: str | None = None
