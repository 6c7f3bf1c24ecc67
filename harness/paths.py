"""Where things lie: the configuration groups, the reference runs, the user's cache."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _shipped(in_tree: str, in_wheel: str) -> Path:
    tree = _PACKAGE.parent / in_tree
    return tree if tree.is_dir() else _PACKAGE / in_wheel


def conf_dir() -> Path:
    """The folder of Hydra's groups: `conf/` in a checkout, packed into the wheel elsewhere."""
    return _shipped("conf", "_conf")


def reference_dir() -> Path:
    """The reference runs, `results/reference/` in a checkout, packed into the wheel elsewhere."""
    return _shipped("results/reference", "_results/reference")


def cache_dir() -> Path:
    """The user's cache of bakeoff: `$BAKEOFF_CACHE`, else `$XDG_CACHE_HOME/bakeoff`, else home."""
    if own := os.environ.get("BAKEOFF_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "bakeoff"
