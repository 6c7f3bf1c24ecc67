"""One level of a load: its shape, its size, its length in time or requests."""

import math
from dataclasses import dataclass, field

from harness.config.checks import Word, require, require_positive
from harness.errors import ConfigError


class Shape(Word):
    """The shape of a load.

    Closed (a request waits for its user's last answer): USERS. Open (arrivals wait for nothing
    and have no cap on how many are in flight): CONSTANT, POISSON, GAMMA, RAMP, TRACE. Between
    the two: SESSIONS, whose turns follow each other. LEVELS plays several on one server; SEARCH
    looks for the highest rate that meets the SLO.
    """

    USERS = "users"
    CONSTANT = "constant"
    POISSON = "poisson"
    GAMMA = "gamma"
    RAMP = "ramp"
    TRACE = "trace"
    SESSIONS = "sessions"
    LEVELS = "levels"
    SEARCH = "search"


class TraceFormat(Word):
    """The columns of a trace. AUTO: by its first row."""

    AUTO = "auto"
    AZURE = "azure"
    BURSTGPT = "burstgpt"
    MOONCAKE = "mooncake"
    CSV = "csv"
    JSONL = "jsonl"


class TimeUnit(Word):
    """The unit of a trace's time stamps. AUTO: what its format says (Mooncake ms, others s)."""

    AUTO = "auto"
    S = "s"
    MS = "ms"


@dataclass
class TraceConf:
    """A recorded load to replay. `path`: a file, or the name of a trace that ships with bakeoff.

    `time_scale`: every arrival time is multiplied by it (0.5: twice the rate, and burstier per
    token). `keep_ratio`: the share of the rows that is kept, drawn at random (thinning keeps the
    burstiness). `columns`: for CSV and JSONL of your own, what theirs are called: `time`,
    `input_tokens`, `output_tokens`, `session`.
    """

    path: str = ""
    format: TraceFormat = TraceFormat.AUTO
    time_unit: TimeUnit = TimeUnit.AUTO
    time_scale: float = 1.0
    keep_ratio: float = 1.0
    columns: dict[str, str] = field(default_factory=dict)

    def check(self, where: str) -> None:
        """Raise ConfigError for a trace that cannot be replayed."""
        if not self.path:
            raise ConfigError(
                f"{where}.path: not given; say which trace, {where}.path=azure_conv or a file"
            )
        require_positive(f"{where}.time_scale", self.time_scale, "(1: as recorded)")
        keep_ok = 0 < self.keep_ratio <= 1
        require(keep_ok, f"{where}.keep_ratio", self.keep_ratio, "in (0, 1], not a percentage")

    @property
    def label(self) -> str:
        """Such as `azure_conv x0.5`: the file's name and what was done to its times."""
        name = self.path.rstrip("/").rpartition("/")[2].split(".")[0]
        scale = f" x{self.time_scale:g}" if self.time_scale != 1 else ""
        kept = f" kept {self.keep_ratio:g}" if self.keep_ratio != 1 else ""
        return f"{name}{scale}{kept}"


_SIZES = ("users", "group_users", "rate_rps", "rate_to_rps", "burstiness", "sessions")
_KNOWN: dict[Shape, set[str]] = {
    Shape.USERS: {"users", "group_users"},
    Shape.CONSTANT: {"rate_rps"},
    Shape.POISSON: {"rate_rps"},
    Shape.GAMMA: {"rate_rps", "burstiness"},
    Shape.RAMP: {"rate_rps", "rate_to_rps"},
    Shape.TRACE: set(),
    Shape.SESSIONS: {"users", "rate_rps", "sessions"},
    Shape.SEARCH: {"burstiness"},
}


@dataclass
class LevelConf:
    """One level of a load: a shape with its size and its length in time or requests.

    A closed level ends after `requests`, or after `duration_s` if `requests` is None. An open
    level draws its arrivals over `duration_s`, or its first `requests` arrivals.
    `group_users`: users that each play one group of the scenario, {light: 7, heavy: 1}, in
    place of `users`. `burstiness`: k of the gamma gaps, 1 is Poisson, below 1 is burstier
    (coefficient of variation 1 / sqrt(k)). A ramp goes from `rate_rps` to `rate_to_rps`.
    `sessions`: how many sessions, begun by `users` one after another or at `rate_rps` a second.
    """

    shape: Shape = Shape.USERS
    users: int | None = None
    group_users: dict[str, int] = field(default_factory=dict)
    think_s: float = 0.0
    rate_rps: float | None = None
    rate_to_rps: float | None = None
    burstiness: float | None = None
    sessions: int | None = None
    requests: int | None = None
    duration_s: float | None = None
    trace: TraceConf = field(default_factory=TraceConf)

    @property
    def is_closed(self) -> bool:
        """Whether a fixed number of users waits for answers before it goes on."""
        return self.shape is Shape.USERS or (self.shape is Shape.SESSIONS and self.rate_rps is None)

    @property
    def user_count(self) -> int:
        """Users of a closed level; 0 for an open one."""
        return sum(self.group_users.values()) or self.users or 0

    @property
    def label(self) -> str:
        """The level's short name, such as `users=8` or `poisson=2/s`."""
        if self.shape is Shape.USERS:
            groups = "+".join(f"{name}={count}" for name, count in self.group_users.items())
            return groups or f"users={self.users}"
        if self.shape is Shape.TRACE:
            return f"trace={self.trace.label}"
        if self.shape is Shape.SEARCH:
            return "search"
        name = self.shape.value
        if self.shape is Shape.GAMMA:
            name = f"gamma(k={self.burstiness:g})"
        if self.shape is Shape.RAMP:
            return f"ramp={self.rate_rps:g}-{self.rate_to_rps:g}/s"
        return f"{name}={self.users} users" if self.users else f"{name}={self.rate_rps:g}/s"

    def check(self, where: str = "load") -> None:
        """Raise ConfigError for a level that cannot be played."""
        for key in _SIZES:
            value = getattr(self, key)
            is_known = not value or key in _KNOWN[self.shape]
            require(is_known, f"{where}.{key}", value, f"absent for {self.shape.value}")
        self._check_users(where)
        self._check_rates(where)
        think_ok = self.think_s >= 0 and math.isfinite(self.think_s)
        require(think_ok, f"{where}.think_s", self.think_s, "a finite number >= 0 seconds")
        for key in ("requests", "sessions"):
            value = getattr(self, key)
            require(value is None or value >= 1, f"{where}.{key}", value, "an integer >= 1")
        require_positive(f"{where}.duration_s", self.duration_s, "seconds")
        self._check_end(where)
        if self.shape is Shape.TRACE:
            self.trace.check(f"{where}.trace")

    def _check_users(self, where: str) -> None:
        for name, count in self.group_users.items():
            require(count >= 1, f"{where}.group_users.{name}", count, "an integer >= 1")
        if self.users is not None:
            require(self.users >= 1, f"{where}.users", self.users, "an integer >= 1")
            both = f"absent beside {where}.group_users"
            require(not self.group_users, f"{where}.users", self.users, both)
        if self.shape is Shape.USERS and not self.user_count:
            raise ConfigError(f"{where}.users: not given; say how many, {where}.users=8")
        if self.shape is Shape.SESSIONS:
            if self.users is None and self.rate_rps is None:
                raise ConfigError(
                    f"{where}.users: not given; say who begins sessions, {where}.users=8, or "
                    f"how often one begins, {where}.rate_rps=0.5"
                )
            is_one = self.users is None or self.rate_rps is None
            require(is_one, f"{where}.rate_rps", self.rate_rps, f"absent beside {where}.users")

    def _check_rates(self, where: str) -> None:
        needed = _KNOWN[self.shape] & {"rate_rps", "rate_to_rps", "burstiness"}
        optional = {Shape.SESSIONS, Shape.SEARCH}
        for key, example in (("rate_rps", 2), ("rate_to_rps", 20), ("burstiness", 0.5)):
            value = getattr(self, key)
            if key in needed and value is None and self.shape not in optional:
                raise ConfigError(f"{where}.{key}: not given; say {where}.{key}={example}")
            unit = "(1 is Poisson)" if key == "burstiness" else "requests per second"
            require_positive(f"{where}.{key}", value, unit)

    def _check_end(self, where: str) -> None:
        ends = (self.requests, self.duration_s, self.sessions)
        if self.shape in {Shape.TRACE, Shape.SEARCH} or any(end is not None for end in ends):
            if self.shape is Shape.RAMP and self.duration_s is None:
                raise ConfigError(f"{where}: a ramp needs {where}.duration_s=60")
            return
        more = f"{where}.sessions" if self.shape is Shape.SESSIONS else f"{where}.requests"
        raise ConfigError(f"{where}: needs {where}.duration_s=30 or {more}=100")
