"""The interface between the harness and an engine: what every adapter gives, and what it gets.

An adapter is sans-IO: it says how to start its server and translates bytes. Clock, socket,
process and thread belong to the rooms that call it, so no engine is timed by its own code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.config import EngineConf, LaunchMode, ModelConf, ModelFormat
from harness.types import (
    Capabilities,
    Chunk,
    Diagnosis,
    EngineIdentity,
    EngineSample,
    HttpCall,
    LogFacts,
    Request,
    ResponseHead,
)

TOKENIZE_PROBE = "The price is 12.50 euro.\nfor i in range(3):\n    print(i)\n中文 naïve café"
"""What the `tokenize` probe asks for: words, digits, code, CJK and accents in a few tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeContext:
    """Where an engine is to run; made by the room that starts it.

    Paths are the same inside a container as outside: whatever is named here is mounted there.
    `host`, `port`: what the server binds. `python`: the interpreter of the engine's own
    environment; None if it has none, or runs in a container. `model_path`: the model on disk, in
    the format that the adapter wants; None if the engine finds it by its name on a hub.
    `threads`: CPU threads to use where `engine.threads` is not set. `folder`: where `files` of a
    ServeSpec will lie; `cache_folder`: where the outputs of its steps are kept.
    """

    port: int
    host: str = "127.0.0.1"
    mode: LaunchMode = LaunchMode.PROCESS
    python: Path | None = None
    model_path: Path | None = None
    threads: int = 1
    folder: Path = Path()
    cache_folder: Path = Path()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareStep:
    """A command to run before the server, once: `output` is kept and found again.

    `what`: for the progress line, such as `building the engine`.
    """

    what: str
    argv: tuple[str, ...]
    output: Path
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSpec:
    """How to start an engine. `env` comes on top of the caller's environment.

    With launch=docker, `argv` is what follows the image's own entry point. `files`: written into
    the context's folder first, by name. `mounts`: further host paths that a container must see.
    `ready_timeout_s`: from start to the first real answer. `stop_timeout_s`: from the polite
    signal to the hard one.
    """

    argv: tuple[str, ...]
    base_url: str
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: tuple[PrepareStep, ...] = ()
    mounts: tuple[Path, ...] = ()
    ready_timeout_s: float = 120.0
    stop_timeout_s: float = 10.0


class Decoder(Protocol):
    """Turns the body of one answer into chunks; one decoder an answer.

    Neither method raises, whatever the bytes: garbage becomes one chunk of kind ERROR, and
    nothing follows it. Where the bytes are cut between calls makes no difference to the chunks.
    """

    def feed(self, data: bytes) -> list[Chunk]:
        """Chunks that these bytes complete, in order; HTTP framing is already taken off."""
        ...

    def end(self) -> list[Chunk]:
        """Chunks that the body's clean end completes; INCOMPLETE_STREAM if the answer is cut."""
        ...


class Adapter(Protocol):
    """One engine. Made from the configuration, so that it knows route, names and settings.

    `probes`: what may be asked beside the load, by name: `health`, `metrics`, `models`,
    `tokenize` (of TOKENIZE_PROBE), `reset_cache` and the engine's own. Without `health` the first
    real request decides whether the server is ready. `model_format`: what its model must be on
    disk; None for a server that has its own.
    """

    name: str
    model_format: ModelFormat | None
    capabilities: Capabilities
    probes: Mapping[str, HttpCall]

    def __init__(self, engine: EngineConf, model: ModelConf) -> None: ...

    @property
    def sample_probes(self) -> tuple[str, ...]:
        """Names of the probes that `engine_sample` reads."""
        ...

    @property
    def identity_probes(self) -> tuple[str, ...]:
        """Names of the probes that `identity` reads."""
        ...

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """How to start the server; ConfigError for a setting that the engine cannot take."""
        ...

    def encode(self, request: Request) -> HttpCall:
        """The HTTP request for one request of the plan, the same bytes every time."""
        ...

    def decoder(self, head: ResponseHead) -> Decoder:
        """A fresh decoder for the answer that begins with this status and these headers."""
        ...

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        """What the engine says of itself, from the bodies of `sample_probes` that came.

        A figure that is absent, not finite or unreadable is None. Never raises.
        """
        ...

    def identity(self, bodies: Mapping[str, bytes]) -> EngineIdentity:
        """What the running engine says it is, from `identity_probes`. Never raises."""
        ...

    def log_facts(self, log: str) -> LogFacts:
        """What the engine's log says of its start; None for what it does not say. Never raises."""
        ...

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """The known failure that the end of the engine's log shows; None if there is none."""
        ...
