"""Who sends what, and how the load is played."""

import math
from dataclasses import dataclass, field, replace

from omegaconf import MISSING

from harness.config.checks import Word, require, require_positive
from harness.errors import ConfigError


class Shape(Word):
    """The shape of a load: closed (`users`), open (`constant`, `poisson`), or several levels."""

    USERS = "users"
    CONSTANT = "constant"
    POISSON = "poisson"
    LEVELS = "levels"


class WarmupMode(Word):
    """QUICK: a few requests. STEADY: until the time per token stands still (method.md 3.1)."""

    QUICK = "quick"
    STEADY = "steady"


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
            require(high >= 1, f"scenario.{key}", high, "an integer >= 1 (tokens)")
            allowed = f"between 1 and scenario.{key}={high}"
            require(low is None or 1 <= low <= high, f"scenario.{key}_min", low, allowed)
        known = "code, en, zh"
        allowed = f"a list of: {known}"
        require(bool(self.languages), "scenario.languages", self.languages, allowed)
        for language in self.languages:
            is_known = language in known.split(", ")
            require(is_known, "scenario.languages", language, f"one of: {known}")


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
            require(self.users >= 1, f"{where}.users", self.users, "an integer >= 1")
            require(self.rate_rps is None, f"{where}.rate_rps", self.rate_rps, "absent for users")
        else:
            if self.rate_rps is None:
                raise ConfigError(f"{where}.rate_rps: not given; say {where}.rate_rps=2")
            allowed = "requests per second"
            require_positive(f"{where}.rate_rps", self.rate_rps, allowed)
            require(self.users is None, f"{where}.users", self.users, "absent for an open load")
        require(
            self.think_s >= 0 and math.isfinite(self.think_s),
            f"{where}.think_s",
            self.think_s,
            "a finite number >= 0 seconds",
        )
        requests_ok = self.requests is None or self.requests >= 1
        require(requests_ok, f"{where}.requests", self.requests, "an integer >= 1")
        require_positive(f"{where}.duration_s", self.duration_s, "seconds")
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
        require_positive("load.request_timeout_s", self.request_timeout_s, "seconds")
        require_positive("load.drain_timeout_s", self.drain_timeout_s, "seconds")
        settle_ok = self.settle_s >= 0 and math.isfinite(self.settle_s)
        require(settle_ok, "load.settle_s", self.settle_s, "a finite number >= 0 seconds")
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
            require(bool(self.levels), "load.levels", self.levels, "a list of at least one level")
        for where, level in self._named_levels():
            allowed = "one shape: levels are not nested"
            require(level.shape is not Shape.LEVELS, f"{where}.shape", "levels", allowed)
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
class WarmupConf:
    """What is played before the first level, with prompts of its own; never measured."""

    mode: WarmupMode = WarmupMode.QUICK
    max_s: float = 120.0

    def __post_init__(self) -> None:
        require_positive("warmup.max_s", self.max_s, "seconds")
