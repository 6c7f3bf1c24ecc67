"""What a run is called and what makes two runs the same measurement."""

import hashlib
from typing import Any

import msgspec

from harness.config import RunConf, Shape


def plain_config(conf: RunConf) -> dict[str, Any]:
    """The configuration as JSON-able values, for `run.json`."""
    content: dict[str, Any] = msgspec.to_builtins(conf)
    return content


def content_hash(conf: RunConf, *, plan_hash: str, model_sha256: str | None) -> str:
    """Equal for runs that would measure the same thing again.

    Covers the configuration (the pinned engine version is in its recipe), the plan, the model and
    the block; not where the result goes, what the price is or which limits are applied to it.
    """
    content = plain_config(conf)
    for key in ("name", "store", "raw", "rerun", "repeats", "hardware"):
        content.pop(key)
    if conf.load.shape is not Shape.SEARCH:  # which is steered by it
        content.pop("slo")
    for key in ("port", "api_key_env"):
        content["launch"].pop(key)
    for key in ("force", "worker_wait_s", "master_bind"):
        content["load"].pop(key)
    content["plan_hash"] = plan_hash
    content["model_sha256"] = model_sha256
    text = msgspec.json.encode(content, order="sorted")
    return hashlib.sha256(text).hexdigest()


def run_id(conf: RunConf, content_hash: str) -> str:
    """A run's folder name: engine, scenario, block, and eight letters of its content hash."""
    return f"{conf.engine.name}-{conf.scenario.name}-b{conf.block}-{content_hash[:8]}"
