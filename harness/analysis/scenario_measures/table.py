"""The measures as a table: what each is called, its unit, which way is better, its formula.

A scenario names those that it is about (`scenario.measures`); nothing heavy is imported.
"""

from dataclasses import dataclass

from harness.analysis.metrics import Better
from harness.types import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureKind:
    """One measure. `unit`: of its main figures; each figure says its own."""

    name: str
    title: str
    unit: str
    better: Better
    formula: str
    source: str = "ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a measure: `label` says of what, `level` at which load (empty: the run)."""

    label: str
    unit: str
    value: Estimate
    level: str = ""


Found = tuple[list[Figure], str]  # what a measure gives: its figures, and a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measure of one candidate at one scenario; `says`: it in a sentence, without a full stop.

    `figures` are empty where the runs do not carry it; then `says` tells why.
    """

    name: str
    candidate: str
    label: str
    scenario: str
    figures: tuple[Figure, ...]
    says: str

    @property
    def kind(self) -> MeasureKind:
        """Its row of the table."""
        return BY_NAME[self.name]


_LOW, _HIGH = Better.LOWER, Better.HIGHER

# fmt: off
MEASURES: tuple[MeasureKind, ...] = (
    MeasureKind(name="ttft_by_group", title="TTFT by group", unit="s", better=_LOW,
                formula="P50 and P90 of TTFT of each group of requests; over the same group alone "
                "at another level, else over the group with the shortest prompts"),
    MeasureKind(name="others_loss", title="What others lose", unit="×", better=_LOW,
                formula="TTFT and TPOT of the groups of a level without the heavy one: in the "
                "level with it over the level without it, paired within each run"),
    MeasureKind(name="accepted_tokens_per_step", title="Accepted tokens a step", unit="tokens",
                better=_HIGH, source="arXiv 2211.17192",
                formula="accepted draft tokens / steps, a step giving one more token of its own: "
                "accepted / (output - accepted); without the engine's counts, tokens a chunk"),
    MeasureKind(name="prefix_hit_ratio", title="Prefix hits", unit="ratio", better=_HIGH,
                formula="prompt tokens out of the cache / prompt tokens; beside it the share that "
                "the plan made reusable"),
    MeasureKind(name="cold_start", title="Cold start", unit="s", better=_LOW,
                formula="time to ready; median TTFT of each user's first request of the first "
                "level, and over the level's median"),
    MeasureKind(name="turn_ttft", title="TTFT by turn", unit="s", better=_LOW,
                formula="P50 of TTFT of each turn of a session; the last turn over the first"),
    MeasureKind(name="drift", title="Drift", unit="s/h", better=_LOW,
                source="Sen 1968",
                formula="Theil-Sen slope of the median TPOT and TTFT of equal pieces of the window "
                "over time, with its 95 % interval"),
    MeasureKind(name="memory_growth", title="Memory growth", unit="bytes/h", better=_LOW,
                source="Sen 1968",
                formula="Theil-Sen slope of the engine's resident memory over the window, with its "
                "95 % interval"),
    MeasureKind(name="lora_spread", title="Spread over adapters", unit="×", better=_LOW,
                formula="largest over least median TTFT and TPOT of the LoRA adapters"),
    MeasureKind(name="tokens_per_hour_cost", title="Tokens an hour", unit="tokens", better=_HIGH,
                formula="3600 x output tokens/s; price per hour / tokens an hour x 1e6"),
    MeasureKind(name="tail_ratio", title="Tail", unit="×", better=_LOW,
                formula="P99 over P50 of TTFT and of chunk gaps, in each run"),
    MeasureKind(name="prefill_rate", title="Reading prompts", unit="tokens/s", better=_HIGH,
                formula="(prompt tokens - those out of the cache) / (first token - sent), median"),
    MeasureKind(name="interactivity", title="Tokens a second of one user", unit="tokens/s",
                better=_HIGH, formula="1 / TPOT of the median request, beside output tokens/s"),
)
# fmt: on

BY_NAME = {kind.name: kind for kind in MEASURES}
