"""What the page says about which comparisons are allowed, and how to read them."""

from dataclasses import dataclass

from harness.analysis.metrics import LATENCY_MARGIN, THROUGHPUT_MARGIN
from harness.analysis.model import Summary
from harness.report.doubts import doubt_groups
from harness.report.names import candidate_labels, candidates_of, workload_labels
from harness.report.settings import Difference, differences
from harness.types import Severity, VerdictKind
from harness.units import percent

_MARGINS = f"{percent(THROUGHPUT_MARGIN)} for throughput, {percent(LATENCY_MARGIN)} for latency"

READING = (
    (
        VerdictKind.BETTER,
        "The first of the pair is better: by enough to matter, and beyond chance (95 %, Holm).",
    ),
    (VerdictKind.WORSE, "The same the other way round: the second of the pair is better."),
    (
        VerdictKind.EQUIVALENT,
        f"No difference that matters: the 90 % interval lies inside the margin ({_MARGINS}).",
    ),
    (
        VerdictKind.INCONCLUSIVE,
        "The runs do not say, which is not the same as equal: it takes more blocks.",
    ),
    (
        VerdictKind.NOT_COMPARABLE,
        "Something that must be equal differs, so no ratio would mean anything.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparable:
    """The lead sentence, each refusal, and the settings that differ."""

    lead: str
    refused: tuple[str, ...]
    differences: tuple[Difference, ...]


def comparable(summary: Summary) -> Comparable:
    """Which comparisons stand, which were refused and why."""
    refused = _refusals(summary)
    total = len(summary.verdicts)
    stood = total - sum(v.kind is VerdictKind.NOT_COMPARABLE for v in summary.verdicts)
    if len(candidates_of(summary)) < 2:  # noqa: PLR2004 (a pair)
        lead = "There is one candidate, so there is nothing to compare it with."
    elif not total:
        lead = "No pair of candidates ran at the same load in the same block: nothing was compared."
    elif stood == total:
        lead = (
            f"All {total} comparisons are between runs with the same plan, model and machine. Each "
            "pairs runs of the same block, so that a drift of the machine meets both alike."
        )
    else:
        lead = f"{stood} of {total} comparisons stand; the others are refused:"
    return Comparable(lead=lead, refused=refused, differences=tuple(differences(summary)))


def _refusals(summary: Summary) -> tuple[str, ...]:
    labels, loads = candidate_labels(summary), workload_labels(summary)
    lines = [
        f"{labels.get(v.a, v.a)} against {labels.get(v.b, v.b)} at "
        f"{loads.get(v.workload, v.workload)}: {v.reason or 'something that must be equal differs'}"
        for v in summary.verdicts
        if v.kind is VerdictKind.NOT_COMPARABLE
    ]
    lines += [
        f"{what}: {group.advice}"
        for group in doubt_groups(summary)
        if group.severity is Severity.INVALID
        for what, _ in group.found
    ]
    return tuple(dict.fromkeys(lines))
