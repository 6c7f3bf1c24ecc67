"""Every setting of every run as flat rows, and which of them differ between candidates."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from harness.analysis.model import Summary
from harness.report.names import candidates_of
from harness.types import RunInfo

HIDDEN = "(hidden)"
# The last word of a name that holds a credential: HF_TOKEN, api_key; not max_tokens.
_SECRET = re.compile(
    r"(^|[._-])(api_?key|key|token|secret|password|passwd|authorization)$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One run's `run.json` for the page: rows of (name, value)."""

    run_id: str
    engine: str
    outcome: str
    started_at: str
    emulated: bool
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting that is not the same for all candidates; `values` in their order."""

    name: str
    values: tuple[str, ...]


def run_settings(runs: Sequence[RunInfo]) -> list[RunSettings]:
    """Every field of every run, flat; credentials are hidden."""
    return [
        RunSettings(
            run_id=run.run_id,
            engine=run.engine,
            outcome=run.outcome.value,
            started_at=run.started_at,
            emulated=run.emulated,
            rows=tuple(flat(msgspec.to_builtins(run))),
        )
        for run in runs
    ]


def differences(summary: Summary) -> list[Difference]:
    """The settings in which the candidates differ, from `Candidate.settings`."""
    candidates = candidates_of(summary)
    tables = [dict(flat(dict(candidate.settings))) for candidate in candidates]
    names = list(dict.fromkeys(name for table in tables for name in table))
    rows = [
        Difference(name=name, values=tuple(table.get(name, "not set") for table in tables))
        for name in names
    ]
    return [row for row in rows if len(set(row.values)) > 1]


def flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, text) of every leaf; an absent value reads `not set`."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and value:
        if any(isinstance(inner, Mapping) for inner in value):
            for index, inner in enumerate(value):
                yield from flat(inner, f"{name}[{index}]")
        else:
            yield name, ", ".join(_leaf(inner) for inner in value)
    else:
        yield name, HIDDEN if _SECRET.search(name) and value else _leaf(value)


def _leaf(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Mapping | list | tuple):
        return "none"
    if isinstance(value, str):
        return value or "(empty)"
    return str(value).lower() if isinstance(value, bool) else str(value)
