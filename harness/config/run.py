"""The whole configuration of one job."""

from dataclasses import dataclass, field
from pathlib import Path

from harness.config.checks import Word, require
from harness.config.engine import EngineConf
from harness.config.launch import LaunchConf, LaunchMode
from harness.config.level import Shape
from harness.config.limits import HardwareConf, ProbeConf, SloConf, ValidityConf
from harness.config.load import LoadConf, WarmupConf
from harness.config.model import ModelConf
from harness.config.scenario import Lengths, ScenarioConf
from harness.errors import ConfigError


class RawMode(Word):
    """What becomes of the raw journal: kept, compressed, or dropped."""

    KEEP = "keep"
    ZSTD = "zstd"
    DROP = "drop"


@dataclass
class RunConf:
    """The whole configuration of one job: one engine start with all its levels.

    `block` is set by the sweep: which randomised block this job belongs to. `store`: where
    results go. `name`: the sweep's folder in it; empty: the time. `rerun`: measure again what
    is already stored. `raw`: what becomes of the journal, from which a run can be decoded again,
    once it has been decoded.
    """

    engine: EngineConf = field(default_factory=EngineConf)
    model: ModelConf = field(default_factory=ModelConf)
    scenario: ScenarioConf = field(default_factory=ScenarioConf)
    load: LoadConf = field(default_factory=LoadConf)
    slo: SloConf = field(default_factory=SloConf)
    hardware: HardwareConf = field(default_factory=HardwareConf)
    launch: LaunchConf = field(default_factory=LaunchConf)
    warmup: WarmupConf = field(default_factory=WarmupConf)
    probe: ProbeConf = field(default_factory=ProbeConf)
    validity: ValidityConf = field(default_factory=ValidityConf)
    repeats: int = 1
    block: int = 0
    seed: int = 1
    store: str = "results"
    name: str = ""
    raw: RawMode = RawMode.KEEP
    rerun: bool = False

    def __post_init__(self) -> None:
        require(self.repeats >= 1, "repeats", self.repeats, "an integer >= 1")
        require(self.seed >= 0, "seed", self.seed, "an integer >= 0")
        is_plain = not self.name or (Path(self.name).name == self.name and self.name[0] != ".")
        require(is_plain, "name", self.name, "a plain folder name, without slashes")
        if self.launch.mode is not LaunchMode.EMULATE:
            self.launch.emulate = None  # what is not played belongs in no result
        if self.launch.mode is not LaunchMode.DOCKER:
            self.engine.image = None
        self._check_lengths()
        self._check_load()

    def _check_lengths(self) -> None:
        limit = self.engine.max_model_len
        input_tokens = self.scenario.longest_input_tokens
        output_tokens = self.scenario.longest_output_tokens
        need = input_tokens + output_tokens
        if limit is not None and need > limit:
            raise ConfigError(
                f"scenario.input_tokens={input_tokens} + scenario.output_tokens={output_tokens}: "
                f"{need} tokens do not fit engine.max_model_len={limit}; raise it or shorten the "
                "scenario"
            )

    def _check_load(self) -> None:
        """What scenario and load ask of each other."""
        groups = {group.name for group in self.scenario.groups}
        levels = self.load.levels or [self.load]
        for level in levels:
            for name in level.group_users:
                allowed = (
                    f"of a group of the scenario: {', '.join(sorted(groups)) or 'it has none'}"
                )
                require(name in groups, "load.group_users", name, allowed)
        shapes = {level.shape for level in levels}
        if self.scenario.lengths is Lengths.TRACE and shapes - {Shape.TRACE}:
            raise ConfigError(
                "scenario.lengths=trace: only with load=trace, whose rows have the lengths"
            )
        if self.load.shape is Shape.SEARCH:
            self._check_search()

    def _check_search(self) -> None:
        slo, low = self.slo, self.load.search.attainment_low_ratio
        if self.load.workers > 1 or self.load.remote_workers:
            raise ConfigError(
                f"load.workers={self.load.workers}: a search decides while it plays, with one load "
                "process on this machine; load.workers=1"
            )
        if slo.ttft_s is None and slo.tpot_s is None and slo.e2e_s is None:
            raise ConfigError("load=search: needs an SLO to meet; say which, slo=chat")
        if low is not None and low >= slo.attainment_ratio:
            raise ConfigError(
                f"load.search.attainment_low_ratio={low:g}: must be below "
                f"slo.attainment_ratio={slo.attainment_ratio:g}"
            )
