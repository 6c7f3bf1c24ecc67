"""The tables of what each candidate's engine is, how it started, and what it tells of itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.analysis.candidates import candidate_of
from harness.analysis.engine_facts import START, TELLS, EngineFacts, Told, Took, engine_facts
from harness.analysis.model import Summary
from harness.report.names import candidate_labels
from harness.store import StoredRun
from harness.types import Determinism
from harness.units import seconds

START_HEADS = (
    ("Install", "once"),
    ("Up", "health"),
    ("Load", "its log"),
    ("Compile", "its log"),
    ("Answer", "first"),
    ("Ready", "total"),
)
TELLS_HEADS = (
    "Forced length",
    "Prefix cache off",
    "Usage in stream",
    "Token id prompts",
    "Tokenize route",
    "Metrics",
    "KV use",
    "Queue",
    "Preemptions",
    "Drafts",
)
_NOT_EXPOSED = Told.NOT_EXPOSED.value
_NO_ENVIRONMENT = "none needed"
_NOT_REACHED = "not reached"
_DIGEST_LENGTH = 12
_WIRES = {"http": "HTTP", "grpc": "gRPC"}
_NEVER_EVIDENCE = "emulated: never evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One cell in words; `more`: a smaller line each. `is_missing`: it says why there is none."""

    text: str
    more: tuple[str, ...] = ()
    is_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """One time of a start. `exact`: `repr` of the stored float, empty if there is none."""

    name: str
    text: str
    span: str = ""
    exact: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One candidate; `times` as `START_HEADS`, `tells` as `TELLS_HEADS`."""

    label: str
    engine: str
    key: str
    note: str
    version: Words
    launch: Words
    weights: Words
    times: tuple[Time, ...]
    texts: Words
    route: Words
    tells: tuple[Words, ...]


def engine_rows(summary: Summary, runs: Mapping[str, StoredRun]) -> list[EngineRow]:
    """A row for each candidate, failed ones last."""
    return [_row(one) for one in engine_facts(summary, runs)]


def emulated_labels(summary: Summary) -> set[str]:
    """Labels of the candidates whose server was an emulator, failed ones among them."""
    labels = candidate_labels(summary)
    labels |= {found.candidate.key: found.candidate.label for found in summary.found}
    keys = {candidate_of(info).key for info in summary.runs.values() if info.emulated}
    return {label for key, label in labels.items() if key in keys}


def _row(one: EngineFacts) -> EngineRow:
    return EngineRow(
        label=one.candidate.label,
        engine=one.candidate.engine,
        key=one.candidate.key,
        note=_NEVER_EVIDENCE if one.emulated else "",
        version=_version(one),
        launch=_launch(one),
        weights=_weights(one),
        times=tuple(_time(one, name) for name in START),
        texts=_texts(one.determinism),
        route=_route(one),
        tells=tuple(_told(one.tells[name]) for name in TELLS),
    )


def _version(one: EngineFacts) -> Words:
    if one.version is not None:
        return Words(text=one.version)
    if one.recipe is not None:
        return Words(text=one.recipe.replace("==", " "), more=("by its recipe",))
    return Words(text=_NOT_EXPOSED, is_missing=True)


def _route(one: EngineFacts) -> Words:
    wire = _WIRES.get(one.wire, one.wire) if one.wire else ""
    return Words(text=one.route or "unknown", more=(wire,) if wire else ())


def _launch(one: EngineFacts) -> Words:
    digest = one.digest or ""
    kind, _, value = digest.partition(":")
    if kind == "sha256":
        digest = f"{kind}:{value[:_DIGEST_LENGTH]}"
    return Words(text=one.launch, more=tuple(filter(None, [one.image, digest])))


def _weights(one: EngineFacts) -> Words:
    more = f"made from {one.made_from}" if one.made_from else one.file
    if one.weights is None:
        return Words(text=_NOT_EXPOSED, is_missing=True)
    return Words(text=one.weights, more=(more,) if more else ())


def _time(one: EngineFacts, name: str) -> Time:
    took = one.start.get(name)
    if took is not None:
        return Time(
            name=name, text=seconds(took.value_s), span=_span(took), exact=repr(took.value_s)
        )
    if name == "install_s" and one.recipe is None:
        return Time(name=name, text=_NO_ENVIRONMENT)
    return Time(name=name, text=_NOT_EXPOSED if one.has_started else _NOT_REACHED)


def _span(took: Took) -> str:
    """Lowest to highest where runs differ."""
    low, high = seconds(took.low_s), seconds(took.high_s)
    return "" if low == high else f"{low} – {high}"


def _texts(found: Determinism | None) -> Words:
    if found is None:
        return Words(text=Told.NOT_ASKED.value, is_missing=True)
    answers = 2 * found.requests - found.failed
    if not answers:
        return Words(text="no answer", is_missing=True)
    failed = (f"{found.failed} failed",) if found.failed else ()
    if found.together == 1:
        return Words(text=f"1 text of {answers}", more=failed)
    split = f"of {answers}: alone {found.alone}, at once {found.crowd}"
    return Words(text=f"{found.together} different texts", more=(split, *failed))


def _told(told: Told) -> Words:
    has_it = told in (Told.YES, Told.MEASURED, Told.DERIVED)
    return Words(text=told.value, is_missing=not has_it)
