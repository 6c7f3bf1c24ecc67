"""The interface between the emulator and an engine's wire; a new engine is one more wire."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf
from harness.emulate.model.figures import Counters, Gauges


class Answer(Protocol):
    """The bytes of one answer, asked for when they are due.

    `head`: sent as soon as the request is taken; `started`: when the engine begins to work on it,
    after its wait in the queue. Both may be empty: then all of it comes with the tokens.
    """

    head: bytes
    started: bytes

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
    full KV block of the prompt; may be empty without a prefix cache.
    """

    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    answer: Answer
    block_keys: tuple[Hashable, ...] = ()


class EngineState(Protocol):
    """What a wire may tell of the engine. `finished`: answers by the reason of their end."""

    finished: dict[str, int]

    @property
    def counters(self) -> Counters:
        """The engine's totals."""
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


class Wire(Protocol):
    """An engine's HTTP interface.

    `number` counts the requests. `names`: the models that are served; empty: every name.
    `defaults`: the engine's own choice for knobs that are not given. `listens_while_loading`:
    whether it answers 503 until it is loaded; else its port is closed. `requests_a_connection`:
    after so many it closes a connection; None: never.
    """

    defaults: Mapping[str, object]
    listens_while_loading: bool
    requests_a_connection: int | None

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
