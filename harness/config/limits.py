"""What is asked of a run: service levels, validity, and what an hour costs."""

from dataclasses import dataclass, field

from harness.config.checks import require, require_positive
from harness.errors import ConfigError


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
            require_positive(f"slo.{key}", getattr(self, key), "seconds")
        ratio = self.attainment_ratio
        require(0 < ratio <= 1, "slo.attainment_ratio", ratio, "in (0, 1], not a percentage")


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
        require_positive("hardware.price.per_hour", self.per_hour, "per hour")
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
class ProbeConf:
    """What is asked of the engine before the load, beside the warm-up.

    `determinism_requests`: one request is sent so often alone and so often at once, to see how
    many different texts come; 0: it is not asked.
    """

    determinism_requests: int = 0

    def __post_init__(self) -> None:
        count = self.determinism_requests
        allowed = "0, or at least 2: one answer alone shows nothing"
        require(count == 0 or count > 1, "probe.determinism_requests", count, allowed)


@dataclass
class ValidityConf:
    """When a run is refused as evidence (exit code 3)."""

    max_error_ratio: float = 0.01
    max_lag_s: float = 0.005

    def __post_init__(self) -> None:
        ratio = self.max_error_ratio
        require(0 <= ratio <= 1, "validity.max_error_ratio", ratio, "a ratio in [0, 1]")
        require_positive("validity.max_lag_s", self.max_lag_s, "seconds")
