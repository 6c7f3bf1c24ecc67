"""What the recommender answers: frozen values that msgspec writes as JSON and reads back.

Nothing here computes. A figure that is not known is None, never 0.
"""

from dataclasses import dataclass
from enum import StrEnum

from harness.types import Doubt, Estimate


class Status(StrEnum):
    """CHOICE: one candidate. TIE: several are as good. REFUSED: the evidence carries no choice."""

    CHOICE = "choice"
    TIE = "tie"
    REFUSED = "refused"


class Tier(StrEnum):
    """How near evidence is to the question. E1: measured here, on this hardware and workload."""

    E1 = "E1"


class Fit(StrEnum):
    """Whether a candidate keeps the SLO at a level, judged on the interval, not on the mean."""

    MET = "met"
    MISSED = "missed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked. `objective`: as judged in the end; None where it came to no judging.

    `input_tokens`, `output_tokens`: (least, most) tokens a request; None if never settled.
    """

    scenario: str | None
    slo: str
    limits: str
    attainment_ratio: float
    objective: str | None
    model: str | None = None
    hardware: str | None = None
    input_tokens: tuple[int, int] | None = None
    output_tokens: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One candidate at one workload: what was measured, and whether the answer rests on it.

    `attainment`: good over scheduled requests, with its exact binomial interval (Clopper and
    Pearson, 95 %) at `n_eff`. `cited`: taking one of `run_ids` away changes the answer or its
    certainty. `date`: of the newest run.
    """

    candidate: str
    engine: str
    workload: str
    level: str
    tier: Tier
    run_ids: tuple[str, ...]
    blocks: tuple[int, ...]
    n: int
    n_eff: float | None
    fit: Fit
    attainment: Estimate
    metrics: dict[str, Estimate]
    date: str
    cited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A candidate at the level that it is judged at, with its value of the objective."""

    candidate: str
    engine: str
    level: str
    metric: str
    unit: str
    value: Estimate
    currency: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Why a candidate, or some of its runs, is not among the contenders."""

    candidate: str
    fact: str
    run_ids: tuple[str, ...]
    test: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One test of the decision tree as it was walked: `answer` is the branch that was taken.

    `branches`: every answer that the test could have given, `facts`: what made it this one.
    """

    test: str
    question: str
    answer: str
    branches: tuple[str, ...]
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """The smallest change of one input that changes the answer; `pct` is signed, of `now`.

    `then`: what holds once it is reached. `is_bound`: nothing was measured nearer, so the change
    may come earlier.
    """

    variable: str
    now: float
    flip_at: float
    pct: float
    then: str
    is_bound: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NextMeasurement:
    """What to measure next: the arguments of a `bakeoff` command line, and why."""

    command: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleNote:
    """What a rule of thumb says of this question and how it stands beside the measurement."""

    rule: str
    says: str
    status: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer with all that it rests on.

    `best`: None when refused. `p_best`, `p_within_5`: probability of being the best, and of
    being within 5 % of it, from the common blocks; None where nothing was compared. `path`: the
    tests of the decision tree in the order walked. `blocks`: blocks common to all contenders.
    """

    question: Question
    status: Status
    reasons: tuple[str, ...]
    best: Pick | None = None
    p_best: float | None = None
    p_within_5: float | None = None
    blocks: int = 0
    runner_up: Pick | None = None
    tied: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    path: tuple[Step, ...] = ()
    flips: tuple[Flip, ...] = ()
    next_measurement: NextMeasurement | None = None
    rules_agree: tuple[RuleNote, ...] = ()
    rules_overridden: tuple[RuleNote, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    refusal: str | None = None
