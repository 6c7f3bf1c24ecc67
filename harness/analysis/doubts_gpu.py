"""Doubts about the GPUs under the load: held back, unevenly used, or with faulty memory."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.analysis.gpu_use import (
    BY_DRIVER,
    BY_HARDWARE,
    POWER_CAP,
    imbalance_ratio,
    rise,
    throttled_ratio,
)
from harness.types import Doubt, Severity
from harness.units import percent

if TYPE_CHECKING:
    from harness.analysis.views import LevelView

_IMBALANCE = 0.25  # (max - min) / mean utilisation


def gpu_doubts(view: "LevelView") -> Iterator[Doubt]:
    """Doubts about the GPUs in one level; none where there is no GPU or it tells nothing."""
    yield from _throttled(view)
    yield from _imbalance(view)
    errors = rise(view, "gpu_ecc_uncorrected_total")
    if errors:
        yield Doubt(
            code="gpu_memory_errors",
            what=f"{errors:.0f} errors of GPU memory could not be corrected (ECC)",
            advice="do not use this GPU: nvidia-smi -q -d ECC, and reset or replace it",
            severity=Severity.INVALID,
            where=view.level.name,
        )


def _throttled(view: "LevelView") -> Iterator[Doubt]:
    hardware, driver = (throttled_ratio(view, reasons) for reasons in (BY_HARDWARE, BY_DRIVER))
    if hardware or driver:
        kind = "hardware" if hardware else "driver"
        words = sorted(_seen(view) & (BY_HARDWARE if hardware else BY_DRIVER))
        yield Doubt(
            code="gpu_throttled",
            what=f"the {kind} held GPU clocks back in {percent(hardware or driver)} of the samples "
            f"({', '.join(words)})",
            advice="cool the machine, check its power supply, and measure again",
            severity=Severity.INVALID if hardware else Severity.WARN,
            where=view.level.name,
        )
    capped = throttled_ratio(view, frozenset({POWER_CAP}))
    if capped:
        yield Doubt(
            code="gpu_power_capped",
            what=f"the power limit held GPU clocks back in {percent(capped)} of the samples",
            advice="nothing, if the limit is the one that is meant: compare only at the same limit",
            severity=Severity.NOTE,
            where=view.level.name,
        )


def _seen(view: "LevelView") -> frozenset[str]:
    told = (words for words in view.host["gpu_throttle"] if isinstance(words, str))
    return frozenset(word for words in told for word in words.split(","))


def _imbalance(view: "LevelView") -> Iterator[Doubt]:
    found = imbalance_ratio(view)
    if found is not None and found > _IMBALANCE:
        yield Doubt(
            code="gpu_imbalance",
            what=f"the GPUs were used unevenly: {percent(found)} of their mean utilisation lies "
            "between the busiest and the idlest",
            advice="check engine.tp, engine.pp and engine.gpus, and how the GPUs are joined",
            where=view.level.name,
        )
