"""The interface between the emulator and an engine's wire; a new engine is one more wire."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf
from harness.emulate.model.figures import Counters, Gauges, StepFigures
from harness.emulate.model.sequence import Sequence
from harness.emulate.model.slots import Slot


class Answer(Protocol):
    """The bytes of one answer, asked for when they are due.

    Both of `head` and `started` may be empty: then all of it comes with the tokens.
    """

    @property
    def head(self) -> bytes:
        """What is sent as soon as the request is taken."""
        ...

    @property
    def started(self) -> bytes:
        """What is sent when the engine begins to work on it, after its wait in the queue."""
        ...

    def token(self, k: int) -> bytes:
        """What is sent for token `k`, counted from 0, if more follow; empty: nothing yet."""
        ...

    def last(self, k: int, cached_tokens: int) -> bytes:
        """What is sent for the last token `k`, with all that ends the answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request that the engine is to work on.

    `finish_reason`: why the answer will end, in the engine's word. `block_keys`: one for each
    full KV block of the prompt; may be empty without a prefix cache. `overloaded`, `failed`: the
    answer to it if it is one too many or the engine fails on it, where that depends on the
    request; None: the wire's. `failure`: what ends the answer if the engine fails on it in the
    middle; None: its connection breaks off. `watch`: is given the sequence that plays it, for an
    answer that tells its own times or its slot.
    """

    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    answer: Answer
    block_keys: tuple[Hashable, ...] = ()
    overloaded: Callable[[], bytes] | None = None
    failed: Callable[[], bytes] | None = None
    failure: bytes | None = None
    watch: Callable[[Sequence], None] | None = None


class EngineState(Protocol):
    """What a wire may tell of the engine. `finished`: answers by the reason of their end."""

    finished: dict[str, int]

    @property
    def counters(self) -> Counters:
        """The engine's totals."""
        ...

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Who works where; the `request` of each is the Answer of its last one."""
        ...

    def gauges(self) -> Gauges:
        """How it stands now."""
        ...

    def memory_bytes(self) -> int:
        """The resident memory that it claims."""
        ...

    def late_s(self) -> float | None:
        """P99 of how late the emulator has sent its tokens, in real seconds."""
        ...

    def reset_cache(self) -> None:
        """Forget the beginnings of all prompts."""
        ...

    def take_steps(self) -> list[StepFigures]:
        """The steps that have ended since the last call, at most a thousand, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How an engine behaves on the network.

    `listens_while_loading`: it answers 503 until it is loaded; else its port is closed.
    `requests_a_connection`: after so many it closes a connection; None: never.
    `disconnect_poll_s`: it looks only so often whether a request's client has gone; 0: it sees
    that at once. `port_offset`: it listens on a second port too, so far above the first.
    """

    listens_while_loading: bool = False
    requests_a_connection: int | None = None
    disconnect_poll_s: float = 0.0
    port_offset: int = 0


class Wire(Protocol):
    """An engine's HTTP interface.

    A whole answer that says `connection: close` closes it; a request that carries it, or is the
    last that its connection takes, has it among its headers.
    `number` counts the requests. `names`: the models that are served; empty: every name.
    `defaults`: the engine's own choice for knobs that are not given.
    """

    defaults: Mapping[str, object]
    manners: Manners

    def __init__(self, conf: EmulateConf, names: tuple[str, ...]) -> None: ...

    def respond(self, request: HttpRequest, number: int, state: EngineState) -> bytes | Ask:
        """A whole answer (a refusal too), or work for the engine. Never raises."""
        ...

    def loading(self) -> bytes:
        """The answer to anything while it loads."""
        ...

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """The answer to a request too many."""
        ...

    def failed(self) -> bytes:
        """The answer to a request that the engine fails on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcRefusal:
    """A call that is answered with a status other than OK (gRPC's number and message)."""

    status: int
    message: str


@runtime_checkable
class GrpcWire(Protocol):
    """What a wire has besides if its engine speaks gRPC on the same port."""

    def call(self, path: str, message: bytes, stream: int, number: int) -> "GrpcRefusal | Ask":
        """A refusal, or work for the engine, to be answered in frames of this HTTP/2 stream.

        `number` counts the calls. Never raises.
        """
        ...

    def grpc_overloaded(self) -> GrpcRefusal:
        """The answer to a call too many."""
        ...

    def grpc_failed(self) -> GrpcRefusal:
        """The answer to a call that the engine fails on."""
        ...
