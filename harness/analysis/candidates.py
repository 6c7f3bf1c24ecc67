"""Which runs are of one candidate, and what candidates and workloads are called."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from harness.analysis.facts import machine_of, model_sha256, setting
from harness.analysis.model import Candidate, Workload
from harness.types import Level, RunInfo

# These do not change what is measured of a candidate, or are the workload.
_LEFT_OUT = frozenset(
    {"load", "scenario", "seed", "block", "store", "name", "repeats", "slo", "validity"}
    | {"rerun", "raw"}
)
_LEFT_OUT_KEYS = frozenset(
    {"launch.port", "launch.api_key_env", "engine.ready_timeout_s", "engine.stop_timeout_s"}
)
_KEY_LENGTH = 12


def settings_of(info: RunInfo) -> dict[str, Any]:
    """The settings that make a candidate, dotted key to value, with the engine's version."""
    flat: dict[str, Any] = {"engine.version": info.identity.version}
    for name, group in info.config.items():
        if name not in _LEFT_OUT:
            flat.update(_flat(group, name))
    return {
        key: value
        for key, value in flat.items()
        if key not in _LEFT_OUT_KEYS and not key.startswith("hardware.price")
    }


def _flat(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {name: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat.update(_flat(inner, f"{name}.{key}"))
    return flat


def candidate_of(info: RunInfo) -> Candidate:
    """The candidate of a run, labelled by its engine alone; `label_apart` tells them apart."""
    settings = settings_of(info)
    machine = machine_of(info).label
    parts = [info.engine, info.model, model_sha256(info), machine, info.emulated, settings]
    digest = hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()
    price = setting(info, "hardware.price.per_hour")
    return Candidate(
        key=digest[:_KEY_LENGTH],
        engine=info.engine,
        label=info.engine,
        model=info.model,
        hardware=machine,
        settings=settings,
        price_per_hour=None if price is None else float(price),
        currency=setting(info, "hardware.price.currency"),
        price_source=setting(info, "hardware.price.source"),
    )


def label_apart(candidates: Sequence[Candidate]) -> dict[str, Candidate]:
    """Candidates by key, each labelled with its engine and the settings in which it differs.

    Settings are compared among candidates of the same engine; model and machine are named where
    they differ within all of them.
    """
    unique = list({candidate.key: candidate for candidate in candidates}.values())
    several_models = len({c.model for c in unique}) > 1
    several_machines = len({c.hardware for c in unique}) > 1
    labelled = {}
    for candidate in unique:
        peers = [c for c in unique if c.engine == candidate.engine]
        words = [candidate.engine]
        if several_models:
            words.append(candidate.model)
        words += _differing(candidate, peers)
        if several_machines:
            words.append(f"on {candidate.hardware}")
        labelled[candidate.key] = replace(candidate, label=" ".join(words))
    return _numbered(labelled)


def _differing(candidate: Candidate, peers: Sequence[Candidate]) -> list[str]:
    keys = dict.fromkeys(key for peer in peers for key in peer.settings)
    words = []
    for key in keys:
        texts = {_text(peer.settings.get(key)) for peer in peers}
        is_named_already = key.split(".")[0] in ("model", "hardware")
        if len(texts) > 1 and not is_named_already:
            word = key.removeprefix("engine.").removeprefix("args.")
            words.append(f"{word}={_text(candidate.settings.get(key))}")
    return words


def _numbered(labelled: dict[str, Candidate]) -> dict[str, Candidate]:
    """Tell apart by a part of the key what no setting tells apart."""
    labels = [candidate.label for candidate in labelled.values()]
    return {
        key: replace(candidate, label=f"{candidate.label} ({key[:4]})")
        if labels.count(candidate.label) > 1
        else candidate
        for key, candidate in labelled.items()
    }


def _text(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(_text(inner) for inner in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def workload_of(info: RunInfo, level: Level) -> Workload:
    """What one level of a run asked of its candidate.

    A level whose name was played before in the same run gets `#2`, `#3`, ... behind it.
    """
    scenario = setting(info, "scenario", {})
    lengths = {key: _range(scenario, key) for key in ("input_tokens", "output_tokens")}
    name = _level_name(info, level)
    languages = ",".join(str(word) for word in scenario.get("languages") or ())
    parts = [str(scenario.get("name", "")), *(f"{a}-{b}" for a, b in lengths.values())]
    return Workload(
        key="|".join([*parts, languages, name]),
        scenario=str(scenario.get("name", "")),
        level=name,
        closed=level.users is not None,
        input_tokens=lengths["input_tokens"],
        output_tokens=lengths["output_tokens"],
        users=level.users,
        rate_rps=level.rate_rps,
    )


def not_reached(workload: Workload) -> Workload:
    """The same for a level whose rate was not reached: no result for the rate in its name."""
    return replace(
        workload,
        key=f"{workload.key}|rate not reached",
        level=f"{workload.level} (rate not reached)",
    )


def _range(scenario: Mapping[str, Any], key: str) -> tuple[int, int]:
    high = int(scenario.get(key) or 0)
    low = scenario.get(f"{key}_min")
    return (high if low is None else int(low), high)


def _level_name(info: RunInfo, level: Level) -> str:
    pause_s = think_s(info, level)
    name = f"{level.name}, think={pause_s:g}s" if pause_s else level.name
    before = sum(1 for one in info.levels if one.name == level.name and one.index < level.index)
    return f"{name} #{before + 1}" if before else name


def think_s(info: RunInfo, level: Level) -> float:
    """Think time of a level's users; of runs whose levels do not say it, as configured."""
    if level.think_s:
        return level.think_s
    several = setting(info, "load.levels") or []
    is_listed = setting(info, "load.shape") == "levels" and level.index < len(several)
    conf = several[level.index] if is_listed else setting(info, "load", {})
    return float(conf.get("think_s") or 0.0)
