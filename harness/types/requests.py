"""What is sent, what comes back, and what became of one request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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

    def route(self, base_url: str) -> str:
        """What the way to a server is called where it is calibrated: `grpc`, `tls` or `http`."""
        is_tls = self is Wire.HTTP and base_url.startswith("https://")
        return "tls" if is_tls else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """One request without host and port. `headers` come beside those the client adds.

    With `wire` GRPC, `path` is `/package.Service/Method` and `body` one protobuf message, without
    gRPC's frame of five bytes. Of probes only: `port_offset` is added to the server's port, for
    what an engine serves on a port of its own (Triton's metrics); `hold_s` is the time for which
    the server may hold an answer back on purpose, added to the time that a probe is given.
    """

    method: str = "POST"
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    wire: Wire = Wire.HTTP
    port_offset: int = 0
    hold_s: float = 0.0


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
