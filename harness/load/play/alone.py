"""A load that one process plays, the child itself."""

from collections.abc import Callable
from pathlib import Path

import gevent

from harness.load.calls import Calls
from harness.load.job import LevelsJob, LoadJob
from harness.load.play.locust_users import Users
from harness.load.play.player import Player
from harness.load.play.share import Share


class LoadAlone:
    """Plays levels in this process. `say`: tells the parent."""

    def __init__(self, job: LoadJob, say: Callable[..., None]) -> None:
        self._job = job
        self._say = say
        self._player = Player(
            job, Path(job.journal), zero_s=job.zero_s, users=Users(), share=Share()
        )

    def play(self, levels: LevelsJob) -> None:
        """Play levels one after another; StoreWriteError if the disk refused the journal."""
        with Calls(Path(levels.calls)) as calls:
            for level in levels.levels:
                if self._player.is_aborted:
                    break
                self._say(event="level", level=level.number, name=level.name)
                self._player.play(level, calls)
                self._player.check_disk()
                gevent.sleep(self._job.settle_s)

    def stop(self, number: int) -> None:
        """Close the window of this level, if it is the one that runs."""
        self._player.stop(number)

    def abort(self) -> None:
        """Cut off what runs and play nothing more."""
        self._player.abort()

    def close(self) -> None:
        """Close connections and journal."""
        self._player.close()
