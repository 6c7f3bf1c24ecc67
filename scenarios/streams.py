"""Random streams: one for each purpose and request, so that no draw moves another.

Only `random()` is used of a stream: it is the one method whose values Python promises to keep
from version to version (documentation of `random`, "Notes on Reproducibility").
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def stream(seed: str, purpose: str, index: int) -> random.Random:
    """The stream of one purpose (`prompts`, `lengths`, ...) for one request or level."""
    return random.Random(f"{seed}:{purpose}:{index}")


def draw_int(rng: random.Random, low: int, high: int) -> int:
    """An integer, uniform on [low, high]."""
    return low + int(rng.random() * (high - low + 1))


def draw(rng: random.Random, items: Sequence[T]) -> T:
    """One item, each equally likely; `items` must not be empty."""
    return items[int(rng.random() * len(items))]
