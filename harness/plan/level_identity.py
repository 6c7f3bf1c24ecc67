"""What makes a level's requests and due times, apart from how many of them are played.

A level's seed is made of this and of nothing else, so that a level is the same wherever it
stands in a list of levels, and a shorter one is the beginning of a longer one. Two runs may be
compared level with level where these are equal.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from harness.config import LevelConf, RunConf, Shape
from harness.plan.trace_level import level_trace, trace_facts

_PARTS = ("users", "group_users", "think_s", "rate_rps", "rate_to_rps", "burstiness")
_ENDS = ("requests", "duration_s", "sessions")
_SEED_LETTERS = 16


def plan_seed(conf: RunConf) -> str:
    """The seed of a block's streams: blocks of one sweep never play the same prompts."""
    return f"{conf.seed}:{conf.block}"


def level_identity(level: LevelConf, seed: str, again: int = 0) -> dict[str, Any]:
    """What makes the requests of a level, JSON-able.

    Args:
        level: one of the load's levels.
        seed: the plan's, for a trace that is thinned.
        again: how many equal levels were played before; they must not repeat its prompts.

    Raises:
        ConfigError: a trace that cannot be read.
    """
    values = asdict(level)
    facts: dict[str, Any] = {"shape": level.shape.value, "again": again}
    facts |= {key: values[key] for key in _PARTS if values[key] not in (None, {})}
    if level.shape is Shape.RAMP:  # its length is its slope
        facts["duration_s"] = level.duration_s
    if level.shape is Shape.TRACE:
        facts["trace"] = trace_facts(level.trace, level_trace(level.trace, seed))
    return facts


def level_identities(conf: RunConf) -> list[dict[str, Any]]:
    """The identity of each level of a run, equal ones counted in the order they are played.

    A file of prompts is one supply for all levels: those after the first say `behind_openings`,
    since they play its rows behind openings of their own, and so differ from a first one.

    Raises:
        ConfigError: a level cannot be played, or its trace not be read.
    """
    seed, seen, identities = plan_seed(conf), dict[str, int](), list[dict[str, Any]]()
    for number, level in enumerate(conf.load.played_levels()):
        alone = digest(level_identity(level, seed))
        again = seen[alone] = seen.get(alone, -1) + 1
        identity = level_identity(level, seed, again)
        if conf.scenario.prompts_file and number:
            identity["behind_openings"] = True
        identities.append(identity)
    return identities


def level_seed(seed: str, identity: Mapping[str, Any]) -> str:
    """The seed of a level's prompts: the plan's seed and the level's own facts."""
    return f"{seed}:{digest(identity)[:_SEED_LETTERS]}"


def level_ends(level: LevelConf) -> dict[str, Any]:
    """How much of a level is played: the limits that are given."""
    return {key: getattr(level, key) for key in _ENDS if getattr(level, key) is not None}


def digest(facts: Mapping[str, Any]) -> str:
    """SHA-256 of JSON-able facts, whatever the order of their keys."""
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()
