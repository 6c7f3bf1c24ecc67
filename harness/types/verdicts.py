"""Figures with their intervals, doubts about them, and what a comparison may say."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a doubt weighs: NOTE informs, WARN weakens, INVALID forbids the use."""

    NOTE = "note"
    WARN = "warn"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A reason to distrust a result, as a value, with what to do next."""

    code: str
    what: str
    advice: str
    severity: Severity = Severity.WARN
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure with its interval (95 % unless said otherwise). None: the sample is too small.

    `n`: samples; `n_eff`: after autocorrelation; `needed`: how many would carry the figure.
    `reason`: why there is none, where more samples would not help.
    """

    value: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int = 0
    n_eff: float | None = None
    needed: int | None = None
    censored: bool = False
    reason: str = ""


class VerdictKind(StrEnum):
    """What a comparison may say; BETTER means that the first of the pair is better."""

    BETTER = "BETTER"
    WORSE = "WORSE"
    EQUIVALENT = "EQUIVALENT"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_COMPARABLE = "NOT_COMPARABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A against B on one metric at one workload, from paired blocks.

    `ratio`: A over B, `ci_low`..`ci_high` its 95 % interval. `runs_needed`: blocks an arm that
    would settle an INCONCLUSIVE at the margin; None if that cannot be said.
    """

    kind: VerdictKind
    metric: str
    a: str
    b: str
    workload: str
    ratio: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    blocks: int = 0
    runs_needed: int | None = None
    reason: str = ""
