"""The one module that imports Locust: it turns a stage into Locust users.

Locust starts the users and (over several workers) spreads them; its HTTP client and statistics
are not used: it rounds response times to two digits and its client cannot time a stream.
"""

import gevent
from locust import User, task
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import LocalRunner

from harness.load.stage import Stage


def _user_class(stage: Stage) -> type[User]:
    numbers = iter(range(1_000_000))

    class PlanUser(User):  # type: ignore[misc]
        """Plays its share of the stage, then leaves."""

        @task  # type: ignore[untyped-decorator]
        def play(self) -> None:
            number = next(numbers)
            if stage.level.users is None:
                stage.play_open()
            else:
                stage.play_closed(number)
            raise StopUser

    return PlanUser


class UserPool:
    """Starts a stage's users in a Locust environment of their own."""

    def __init__(self, stage: Stage) -> None:
        self._environment = Environment(user_classes=[_user_class(stage)], catch_exceptions=False)
        self._runner: LocalRunner = self._environment.create_local_runner()
        self._count = stage.level.users or 1

    def start(self) -> None:
        """Start all users at once."""
        self._runner.start(user_count=self._count, spawn_rate=self._count)

    @property
    def is_done(self) -> bool:
        """Whether all users have been started and have left again."""
        greenlet = self._runner.spawning_greenlet
        has_spawned = greenlet is not None and greenlet.dead
        return bool(has_spawned and self._runner.user_count == 0)

    def quit(self) -> None:
        """End Locust's own greenlets of this pool."""
        self._runner.quit()
        gevent.sleep(0)
