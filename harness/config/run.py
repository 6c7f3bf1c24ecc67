"""The whole configuration of one job."""

from dataclasses import dataclass, field
from pathlib import Path

from harness.config.checks import require
from harness.config.engine import EngineConf, LaunchConf, ModelConf
from harness.config.limits import HardwareConf, SloConf, ValidityConf
from harness.config.load import LoadConf, ScenarioConf, WarmupConf
from harness.errors import ConfigError


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
        require(self.repeats >= 1, "repeats", self.repeats, "an integer >= 1")
        require(self.seed >= 0, "seed", self.seed, "an integer >= 0")
        is_plain = not self.name or (Path(self.name).name == self.name and self.name[0] != ".")
        require(is_plain, "name", self.name, "a plain folder name, without slashes")
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
