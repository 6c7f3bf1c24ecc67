"""What each candidate's engine is, how long its start took, and what it tells of itself.

All of it is in `run.json`; only queue, preemptions and drafts are looked for in its samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median_low

import pyarrow as pa

from harness.analysis.candidates import candidate_of
from harness.analysis.facts import fact, setting, weights
from harness.analysis.model import Candidate, Summary
from harness.errors import StoreFormatError
from harness.store import StoredRun
from harness.types import Capabilities, Determinism, Provenance, RunInfo


class Told(StrEnum):
    """Whether an engine gives something; what it cannot give is never 0 or blank."""

    YES = "yes"
    MEASURED = "measured"
    DERIVED = "derived"
    NOT_EXPOSED = "not exposed"
    NOT_ASKED = "not asked"
    NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """One time of the start over the runs that have it, in seconds; `value_s`: the low median."""

    value_s: float
    low_s: float
    high_s: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """One candidate over all its runs; None where nobody says it.

    `version`: as the server says; `recipe`: the pinned package of the environment it ran in.
    `made_from`: the file that its weights were converted from. `start`: names of `START` to
    times. `determinism`: that of the run with most different texts. `has_started`: whether any
    run came to its first answer. `tells`: names of `TELLS` to what is known.
    """

    candidate: Candidate
    run_ids: tuple[str, ...]
    emulated: bool
    version: str | None
    recipe: str | None
    launch: str
    route: str | None
    wire: str | None
    image: str | None
    digest: str | None
    weights: str | None
    file: str | None
    made_from: str | None
    has_started: bool
    start: Mapping[str, Took]
    determinism: Determinism | None
    tells: Mapping[str, Told]


START = ("install_s", "up_s", "load_s", "compile_s", "first_answer_s", "time_to_ready_s")
_ABILITIES = (
    "forced_length",
    "prefix_cache_off",
    "usage_in_stream",
    "token_id_prompts",
    "tokenize_route",
    "metrics",
)
_SAMPLED = {
    "queue": "waiting",
    "preemptions": "preemptions_total",
    "drafts": "draft_tokens_total",
}
_KV_USE = {
    Provenance.MEASURED: Told.MEASURED,
    Provenance.DERIVED: Told.DERIVED,
    Provenance.NOT_EXPOSED: Told.NOT_EXPOSED,
}
_NO_DRAFTS = "none"
TELLS = (*_ABILITIES, "kv_use", *_SAMPLED)


def engine_facts(summary: Summary, runs: Mapping[str, StoredRun]) -> tuple[EngineFacts, ...]:
    """Every candidate of the summary, failed ones last; `runs`: by run id, for the samples."""
    known = [cell.candidate for cell in summary.cells]
    known += [found.candidate for found in summary.found]
    known += [failed.candidate for failed in summary.failed]
    groups: dict[str, list[RunInfo]] = {}
    for info in summary.runs.values():
        groups.setdefault(candidate_of(info).key, []).append(info)
    kv_use = {one.candidate.key: one.kv_metric for one in summary.memory}
    return tuple(
        _facts(
            candidate,
            groups[key],
            [runs[info.run_id] for info in groups[key] if info.run_id in runs],
            kv_use.get(key),
        )
        for key, candidate in {one.key: one for one in known}.items()
        if key in groups
    )


def _facts(
    candidate: Candidate,
    infos: Sequence[RunInfo],
    stored: Sequence[StoredRun],
    kv_use: Provenance | None,
) -> EngineFacts:
    info = next((one for one in infos if one.time_to_ready_s is not None), infos[0])
    can = info.capabilities
    packages = fact(info, "engine_recipe") or ()
    tables = [table for run in stored if (table := _samples(run))]
    return EngineFacts(
        candidate=candidate,
        run_ids=tuple(one.run_id for one in infos),
        emulated=info.emulated,
        version=info.identity.version,
        recipe=str(packages[0]) if packages else None,
        launch=str(setting(info, "launch.mode", "unknown")),
        route=setting(info, "engine.route"),
        wire=can.wire.value if can else None,
        image=fact(info, "image.reference"),
        digest=fact(info, "image.digest"),
        weights=weights(info),
        file=fact(info, "model.file"),
        made_from=fact(info, "model.derived_from.file"),
        has_started=any(one.time_to_ready_s is not None for one in infos),
        start={name: took for name in START if (took := _took(name, infos))},
        determinism=_determinism(infos),
        tells=_tells(info, tables, kv_use if tables else None),
    )


def _took(name: str, infos: Sequence[RunInfo]) -> Took | None:
    """The figure lies in the start, in the log, or in the run itself, under the same name."""
    found = [
        getattr(holder, name)
        for info in infos
        for holder in (info.start, info.log, info)
        if hasattr(holder, name)
    ]
    known = [float(value) for value in found if value is not None]
    if not known:
        return None
    return Took(value_s=median_low(known), low_s=min(known), high_s=max(known), runs=len(known))


def _determinism(infos: Sequence[RunInfo]) -> Determinism | None:
    asked = [info.determinism for info in infos if info.determinism is not None]
    return max(asked, key=lambda one: one.together, default=None)


def _samples(run: StoredRun) -> pa.Table | None:
    try:
        table = run.engine_samples()
    except StoreFormatError:
        return None  # the summary has a doubt about it
    return table if table.num_rows else None


def _tells(
    info: RunInfo, tables: Sequence[pa.Table], kv_use: Provenance | None
) -> Mapping[str, Told]:
    can = info.capabilities
    if can is None:
        told = dict.fromkeys(_ABILITIES, Told.NOT_RECORDED)
    else:
        told = {name: Told.YES if getattr(can, name) else Told.NOT_EXPOSED for name in _ABILITIES}
    return {
        **told,
        "kv_use": _kv_use(can, kv_use),
        **{name: _sampled(info, name, tables) for name in _SAMPLED},
    }


def _kv_use(can: Capabilities | None, seen: Provenance | None) -> Told:
    """What the samples had; without samples, what the adapter says of the engine."""
    kind = seen if seen is not None or can is None else can.kv_metric
    return Told.NOT_RECORDED if kind is None else _KV_USE[kind]


def _sampled(info: RunInfo, name: str, tables: Sequence[pa.Table]) -> Told:
    """Of drafts an engine need not speak unless it was told to make some."""
    column, can = _SAMPLED[name], info.capabilities
    if any(table[column].null_count < table.num_rows for table in tables):
        return Told.MEASURED
    if not tables and (can is None or can.metrics):
        return Told.NOT_RECORDED
    if name == "drafts" and setting(info, "engine.speculation.method", _NO_DRAFTS) == _NO_DRAFTS:
        return Told.NOT_ASKED
    return Told.NOT_EXPOSED
