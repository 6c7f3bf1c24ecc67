"""Which column of a trace holds what: the known formats, and how one is told by its columns.

Sources: Azure/AzurePublicDataset, HPMLL/BurstGPT and kvcache-ai/Mooncake (method.md 2.2).
Names are compared without regard to case and to blanks around them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.config import TimeUnit, TraceConf, TraceFormat
from harness.errors import ConfigError

NEEDED = ("time", "input_tokens", "output_tokens")
OPTIONAL = ("session", "hash_ids")
_OWN = {
    "time": ("time", "timestamp", "arrival_s"),
    "input_tokens": ("input_tokens",),
    "output_tokens": ("output_tokens",),
}
_OPTIONAL_NAMES = {"session": ("session", "session id", "session_id"), "hash_ids": ("hash_ids",)}
_FORMATS: Mapping[TraceFormat, Mapping[str, tuple[str, ...]]] = {
    TraceFormat.CSV: _OWN,
    TraceFormat.JSONL: _OWN,
    TraceFormat.AZURE: {
        "time": ("TIMESTAMP",),
        "input_tokens": ("ContextTokens",),
        "output_tokens": ("GeneratedTokens",),
    },
    TraceFormat.BURSTGPT: {
        "time": ("Timestamp",),
        "input_tokens": ("Request tokens",),
        "output_tokens": ("Response tokens",),
    },
    TraceFormat.MOONCAKE: {
        "time": ("timestamp",),
        "input_tokens": ("input_length",),
        "output_tokens": ("output_length",),
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A trace's format and the names of its columns, by what they hold; absent ones are None.

    `time_unit`: `s` or `ms`, for stamps that are numbers. `time_unit_source`: `given`, `column`
    (its name ends in the unit), `format`, or `assumed`.
    """

    format: TraceFormat
    is_detected: bool
    names: Mapping[str, str | None]
    time_unit: str
    time_unit_source: str


def find_layout(
    conf: TraceConf, container: TraceFormat, columns: Sequence[str], name: str
) -> Layout:
    """The layout of a trace `name` with these columns in a `container`, CSV or JSONL.

    Raises:
        ConfigError: columns are missing, or the configuration and the file do not agree.
    """
    unknown = set(conf.columns) - {*NEEDED, *OPTIONAL}
    if unknown:
        raise ConfigError(
            f"load.trace.columns={', '.join(sorted(unknown))}: must be of "
            f"{', '.join((*NEEDED, *OPTIONAL))}"
        )
    if conf.format in {TraceFormat.CSV, TraceFormat.JSONL} and conf.format is not container:
        raise ConfigError(
            f"load.trace.format={conf.format.value}: trace {name} begins like "
            f"{container.value}; say load.trace.format={container.value}"
        )
    kind = conf.format
    if kind is TraceFormat.AUTO:
        kind = container if conf.columns else _nearest(container, columns)
    names = _names(conf, kind, columns)
    missing = [role for role in {**dict.fromkeys(NEEDED), **conf.columns} if names[role] is None]
    if missing:
        raise _missing_columns(conf, kind, missing, columns, name)
    unit, source = _unit(conf, kind, names)
    return Layout(
        format=kind,
        is_detected=conf.format is TraceFormat.AUTO,
        names=names,
        time_unit=unit,
        time_unit_source=source,
    )


def _nearest(container: TraceFormat, columns: Sequence[str]) -> TraceFormat:
    """The format most of whose columns are there; the user's own one where several are."""
    candidates = [container, *(f for f in _FORMATS if _FORMATS[f] is not _OWN)]

    def found(kind: TraceFormat) -> int:
        return sum(_find(wanted, columns) is not None for wanted in _FORMATS[kind].values())

    return max(candidates, key=found)


def _names(conf: TraceConf, kind: TraceFormat, columns: Sequence[str]) -> dict[str, str | None]:
    wanted = {**_FORMATS[kind], **_OPTIONAL_NAMES}
    wanted |= {role: (column,) for role, column in conf.columns.items()}
    return {role: _find(names, columns) for role, names in wanted.items()}


def _find(wanted: Sequence[str], columns: Sequence[str]) -> str | None:
    by_name = {column.strip().casefold(): column for column in reversed(columns)}
    found = (by_name.get(name.strip().casefold()) for name in wanted)
    return next((column for column in found if column is not None), None)


def _missing_columns(
    conf: TraceConf, kind: TraceFormat, missing: Sequence[str], columns: Sequence[str], name: str
) -> ConfigError:
    needed = [conf.columns.get(role) or " or ".join(_FORMATS[kind][role]) for role in missing]
    shown = ", ".join(column[:40] for column in columns[:20]) or "none"
    mapping = ", ".join(f"{role}: NAME" for role in missing)
    return ConfigError(
        f"trace {name}: has no column {', '.join(needed)} (format {kind.value}); it has: {shown}; "
        f"say which to use, 'load.trace.columns={{{mapping}}}'"
    )


def _unit(conf: TraceConf, kind: TraceFormat, names: Mapping[str, str | None]) -> tuple[str, str]:
    if conf.time_unit is not TimeUnit.AUTO:
        return conf.time_unit.value, "given"
    time_column = (names["time"] or "").strip().casefold()
    for unit in ("ms", "s"):
        if time_column.endswith((f"_{unit}", f"({unit})")):
            return unit, "column"
    if kind is TraceFormat.MOONCAKE:
        # other tools write seconds under the same names, but no hash ids (case C62)
        is_sure = conf.format is kind or names["hash_ids"] is not None
        return "ms", "format" if is_sure else "assumed"
    return "s", "format" if kind is TraceFormat.BURSTGPT else "assumed"
