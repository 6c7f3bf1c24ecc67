"""How a load is played: its levels, its limits in time, by how many workers."""

import math
from dataclasses import dataclass, field, fields, replace

from harness.config.checks import Word, require, require_positive
from harness.config.level import LevelConf, Shape
from harness.errors import ConfigError


class WarmupMode(Word):
    """QUICK: a few requests. STEADY: until the time per token stands still (method.md 3.1)."""

    QUICK = "quick"
    STEADY = "steady"


@dataclass
class SearchConf:
    """The search for the highest rate that meets the SLO (method.md 2.1).

    `rate_low_rps`, `rate_high_rps`: where to look; None: found by a burst. It ends when the
    bracket's ends differ by at most `ratio`. At each rate a sequential test decides between
    the SLO's attainment and `attainment_low_ratio`, wrong with probability `error_ratio` over
    the whole search. `probe_min_s`: a rate cannot pass earlier, since near its capacity a system
    takes long to fill up. `probe_max_s`: a rate not decided after so long counts as failed.
    `confirm_runs`: fresh runs (each a server start) that must agree on the result; 0: none.
    `confirm_rates`, `confirms`, `confirm_number`: set by the sweep in such a run: the rates to
    try again, and which search found them.
    """

    rate_low_rps: float | None = None
    rate_high_rps: float | None = None
    ratio: float = 1.05
    attainment_low_ratio: float | None = None
    error_ratio: float = 0.05
    probe_min_s: float = 30.0
    probe_max_s: float = 600.0
    probes_max: int = 16
    confirm_runs: int = 3
    confirm_rates: list[float] = field(default_factory=list)
    confirms: str = ""
    confirm_number: int = 0

    def __post_init__(self) -> None:
        for key in ("rate_low_rps", "rate_high_rps"):
            require_positive(f"load.search.{key}", getattr(self, key), "requests per second")
        if self.rate_low_rps is not None and self.rate_high_rps is not None:
            allowed = f"above load.search.rate_low_rps={self.rate_low_rps:g}"
            is_above = self.rate_high_rps > self.rate_low_rps
            require(is_above, "load.search.rate_high_rps", self.rate_high_rps, allowed)
        ratio_ok = math.isfinite(self.ratio) and self.ratio > 1
        require(ratio_ok, "load.search.ratio", self.ratio, "a finite number > 1")
        low = self.attainment_low_ratio
        low_ok = low is None or 0 < low < 1
        require(low_ok, "load.search.attainment_low_ratio", low, "in (0, 1), below the SLO's")
        error_ok = 0 < self.error_ratio < 0.5  # noqa: PLR2004 a coin
        require(error_ok, "load.search.error_ratio", self.error_ratio, "in (0, 0.5)")
        require_positive("load.search.probe_min_s", self.probe_min_s, "seconds")
        allowed = f"a finite number of seconds >= load.search.probe_min_s={self.probe_min_s:g}"
        max_ok = math.isfinite(self.probe_max_s) and self.probe_max_s >= self.probe_min_s
        require(max_ok, "load.search.probe_max_s", self.probe_max_s, allowed)
        require(self.probes_max >= 1, "load.search.probes_max", self.probes_max, "an integer >= 1")
        runs_ok = self.confirm_runs >= 0
        require(runs_ok, "load.search.confirm_runs", self.confirm_runs, "an integer >= 0")


@dataclass
class LoadConf(LevelConf):
    """How the load is played. `shape: levels` plays `levels` one after another on one server.

    `drain_timeout_s`: how long requests due in the window may still take before they are cut off
    and counted as censored. `settle_s`: pause between levels. `retries`: how often a request
    that is refused with 429 is sent again after the wait that the server asks for; its clock
    runs on from the first time. `workers`: load processes that share each level;
    `remote_workers` of them come from other machines (`bakeoff worker`), waited for
    `worker_wait_s`. `force`: play what this machine cannot carry by our own estimate.
    """

    levels: list[LevelConf] = field(default_factory=list)
    search: SearchConf = field(default_factory=SearchConf)
    request_timeout_s: float = 600.0
    drain_timeout_s: float = 120.0
    settle_s: float = 0.2
    retries: int = 0
    workers: int = 1
    remote_workers: int = 0
    worker_wait_s: float = 60.0
    master_bind: str = "127.0.0.1:5557"
    force: bool = False

    def __post_init__(self) -> None:
        require_positive("load.request_timeout_s", self.request_timeout_s, "seconds")
        require_positive("load.drain_timeout_s", self.drain_timeout_s, "seconds")
        require_positive("load.worker_wait_s", self.worker_wait_s, "seconds")
        settle_ok = self.settle_s >= 0 and math.isfinite(self.settle_s)
        require(settle_ok, "load.settle_s", self.settle_s, "a finite number >= 0 seconds")
        require(self.retries >= 0, "load.retries", self.retries, "an integer >= 0")
        require(self.workers >= 1, "load.workers", self.workers, "an integer >= 1")
        allowed = f"between 0 and load.workers={self.workers}"
        remote_ok = 0 <= self.remote_workers <= self.workers
        require(remote_ok, "load.remote_workers", self.remote_workers, allowed)
        host, _, port = self.master_bind.rpartition(":")
        bind_ok = bool(host) and port.isdecimal()
        require(bind_ok, "load.master_bind", self.master_bind, "HOST:PORT")
        if self._is_blank:
            return
        self._check_levels()

    @property
    def _is_blank(self) -> bool:
        """Nothing is given: what OmegaConf builds before the YAML fills it."""
        sizes = (self.users, self.rate_rps, self.requests, self.duration_s, self.sessions)
        is_plain = self.shape is Shape.USERS and not self.group_users
        return is_plain and not self.levels and all(size is None for size in sizes)

    def _check_levels(self) -> None:
        if self.shape is Shape.LEVELS:
            require(bool(self.levels), "load.levels", self.levels, "a list of at least one level")
        else:
            require(not self.levels, "load.levels", self.levels, "absent beside one shape")
        for where, level in self._named_levels():
            if where != "load":
                allowed = "one shape: levels are not nested, and a search plays alone"
                is_single = level.shape not in {Shape.LEVELS, Shape.SEARCH}
                require(is_single, f"{where}.shape", level.shape.value, allowed)
            level.check(where)

    def _named_levels(self) -> list[tuple[str, LevelConf]]:
        if self.shape is Shape.LEVELS:
            return [
                (f"load.levels[{i}]", self._completed(level)) for i, level in enumerate(self.levels)
            ]
        single = LevelConf(**{one.name: getattr(self, one.name) for one in fields(LevelConf)})
        return [("load", single)]

    def _completed(self, level: LevelConf) -> LevelConf:
        """A level of a list with what the load says for all of them."""
        if not level.trace.path:
            level = replace(level, trace=self.trace)
        ends = (level.requests, level.duration_s, level.sessions)
        if any(end is not None for end in ends):
            return level
        requests = None if level.shape is Shape.SESSIONS else self.requests
        return replace(level, requests=requests, duration_s=self.duration_s)

    def played_levels(self) -> list[LevelConf]:
        """The levels in the order they are played; one for a simple shape.

        A closed level that counts its requests has no duration. A search has none that are known
        before: ConfigError.
        """
        if self.shape is Shape.SEARCH:
            raise ConfigError("load.shape=search: its levels are found while it runs")
        self._check_levels()
        played = [level for _, level in self._named_levels()]
        return [
            replace(level, duration_s=None)
            if level.shape is Shape.USERS and level.requests
            else level
            for level in played
        ]


@dataclass
class WarmupConf:
    """What is played before the first level, with prompts of its own; never measured."""

    mode: WarmupMode = WarmupMode.QUICK
    max_s: float = 120.0

    def __post_init__(self) -> None:
        require_positive("warmup.max_s", self.max_s, "seconds")
