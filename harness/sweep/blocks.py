"""Randomised complete blocks: which jobs to launch, in which order, and which are stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from harness.config import RunConf
from harness.store import open_runs, run_folders
from harness.types import Doubt, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockJob:
    """One job of a block: its overrides and what makes it the same measurement."""

    conf: RunConf
    overrides: tuple[str, ...]
    content_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What a sweep will do. `blocks`: jobs to launch, in order; `stored`: runs to reuse."""

    blocks: tuple[tuple[BlockJob, ...], ...]
    stored: tuple[Path, ...]


def finished_runs(store: Path) -> tuple[dict[str, Path], tuple[Doubt, ...]]:
    """Content hash to folder of every finished, valid run in a store, and what is damaged."""
    if not store.is_dir() or not any(run_folders(store)):
        return {}, ()
    opened = open_runs(store, strict=False)
    finished = {
        run.info.content_hash: run.folder
        for run in opened.runs
        if run.info.ended_at and run.info.outcome is Outcome.OK
    }
    return finished, opened.doubts


def schedule(
    blocks: Sequence[Sequence[BlockJob]], finished: Mapping[str, Path], *, seed: int
) -> Schedule:
    """Order each block at random and leave out the blocks that are stored whole.

    A block is compared within itself, so one that is half done is measured again whole.
    """
    to_launch: list[tuple[BlockJob, ...]] = []
    stored: list[Path] = []
    for number, block in enumerate(blocks):
        if all(job.content_hash in finished for job in block):
            stored += [finished[job.content_hash] for job in block]
            continue
        shuffled = list(block)
        Random(f"{seed}:order:{number}").shuffle(shuffled)
        to_launch.append(tuple(shuffled))
    return Schedule(blocks=tuple(to_launch), stored=tuple(stored))
