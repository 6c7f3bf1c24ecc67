"""What is known while the decision tree is walked: the question, and what the tests found."""

from dataclasses import dataclass, field
from datetime import date

from harness.analysis.model import Cell, Summary
from harness.config import SloConf
from harness.recommend.best import Ranking
from harness.recommend.model import Exclusion, Fit, NextMeasurement, Pick, Question, Status
from harness.recommend.objectives import Objective
from harness.types import Doubt, Estimate
from harness.units import seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The question as the user put it; None where it was left open.

    `users`, `rate_rps`: the least load that must be carried.
    """

    slo: SloConf
    scenario: str | None = None
    objective: str | None = None
    model: str | None = None
    hardware: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    users: int | None = None
    rate_rps: float | None = None
    today: date | None = None

    @property
    def has_limits(self) -> bool:
        """Whether the SLO asks for anything at all."""
        return any((self.slo.ttft_s, self.slo.tpot_s, self.slo.e2e_s))

    def limits(self) -> str:
        """The SLO's limits in words, such as `TTFT <= 5 s, TPOT <= 150 ms`."""
        parts = [
            f"{name} <= {seconds(value)}"
            for name, value in (
                ("TTFT", self.slo.ttft_s),
                ("TPOT", self.slo.tpot_s),
                ("E2E", self.slo.e2e_s),
            )
            if value is not None
        ]
        return ", ".join(parts) or "no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A cell with its share of good requests and what that says of the SLO."""

    cell: Cell
    attainment: Estimate
    fit: Fit

    @property
    def key(self) -> str:
        """The candidate's key."""
        return self.cell.candidate.key

    @property
    def load(self) -> float:
        """The load in users or requests a second, for ordering levels of one kind."""
        return load_of(self.cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A candidate that meets the SLO, at the level that it is judged at.

    `above`: the next higher level that was measured, which does not meet it (or is unknown).
    """

    scored: Scored
    above: Scored | None

    @property
    def cell(self) -> Cell:
        """The cell that it is judged by."""
        return self.scored.cell

    @property
    def label(self) -> str:
        """The candidate's label."""
        return self.scored.cell.candidate.label


@dataclass(slots=True, kw_only=True)
class Case:
    """The state of a walk: `cells` shrinks to what bears on the question, the rest is filled."""

    summary: Summary
    asked: Asked
    cells: list[Cell]
    excluded: list[Exclusion] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    contenders: list[Contender] = field(default_factory=list)
    objective: Objective | None = None
    metric: str | None = None
    picks: list[Pick] = field(default_factory=list)
    common_blocks: int = 0
    ranking: Ranking | None = None
    status: Status = Status.REFUSED
    best: int | None = None
    tied: tuple[int, ...] = ()
    reasons: list[str] = field(default_factory=list)
    refusal: str | None = None
    next_measurement: NextMeasurement | None = None
    last_facts: tuple[str, ...] = ()

    @property
    def goal(self) -> Objective:
        """The objective, once it was settled by its test."""
        assert self.objective is not None
        return self.objective

    def refuse(self, reason: str) -> None:
        """End without a choice, for one reason."""
        self.status = Status.REFUSED
        self.refusal = reason
        self.reasons.append(reason)

    def question(self) -> Question:
        """The question with what the tests settled of it."""
        cells = self.cells
        first = cells[0] if cells else None
        return Question(
            scenario=first.workload.scenario if first else self.asked.scenario,
            slo=self.asked.slo.name,
            limits=self.asked.limits(),
            attainment_ratio=self.asked.slo.attainment_ratio,
            objective=self.objective.name if self.objective else self.asked.objective,
            model=self._only({cell.candidate.model for cell in cells}, self.asked.model),
            hardware=self._only({cell.candidate.hardware for cell in cells}, self.asked.hardware),
            input_tokens=self._lengths({cell.workload.input_tokens for cell in cells}),
            output_tokens=self._lengths({cell.workload.output_tokens for cell in cells}),
        )

    @staticmethod
    def _only(found: set[str], asked: str | None) -> str | None:
        return next(iter(found)) if len(found) == 1 else asked

    @staticmethod
    def _lengths(found: set[tuple[int, int]]) -> tuple[int, int] | None:
        return next(iter(found)) if len(found) == 1 else None


def load_of(cell: Cell) -> float:
    """A cell's load: users of a closed load, requests a second of an open one; 0 if neither."""
    load = cell.workload.users if cell.workload.closed else cell.workload.rate_rps
    return 0.0 if load is None else float(load)
