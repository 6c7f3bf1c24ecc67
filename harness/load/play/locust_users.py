"""The one module that imports Locust: it starts the users, and it joins master and workers.

Locust's HTTP client and statistics are not used: it rounds response times to two digits and its
client cannot time a stream. What master and workers say to each other is ours (`messages`), as
bytes in one kind of message of Locust's; nothing is pickled.
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

import gevent
from locust import User, task
from locust.env import Environment
from locust.exception import RPCError, StopUser
from locust.runners import STATE_MISSING

from harness.errors import ConfigError

_KIND = "bakeoff"
# We say ourselves what matters, in one sentence each; tracebacks of greenlets are not logged here.
logging.getLogger("locust").setLevel(logging.CRITICAL)


class Users:
    """Locust users of one process, a worker's or one alone: started at once, gone when done.

    `failure`: what a user raised; a defect of ours.
    """

    def __init__(self) -> None:
        self._environment = Environment(user_classes=[_user_class(self)], catch_exceptions=False)
        self._runner: Any = self._make_runner()
        self.failure: Exception | None = None
        self._play: Callable[[int], None] = lambda _: None
        self._started = 0

    def start(self, count: int, play: Callable[[int], None]) -> None:
        """Start `count` users; user number `n`, from 0, calls `play(n)` and leaves."""
        self._play, self._started = play, 0
        self._runner.spawn_users({"PlanUser": count})

    def _make_runner(self) -> Any:
        return self._environment.create_local_runner()

    @property
    def are_done(self) -> bool:
        """Whether all users have left again, or one has failed."""
        return self.failure is not None or self._runner.user_count == 0

    def stop(self) -> None:
        """End the users that are left, which are none unless something failed."""
        if self._runner.user_count:
            self._runner.user_greenlets.kill()

    def play_next(self) -> None:
        """What a user does, once."""
        number, self._started = self._started, self._started + 1
        try:
            self._play(number)
        except Exception as error:  # noqa: BLE001 - told where the level ends
            self.failure = self.failure or error


class WorkerUsers(Users):
    """Users of a worker, and its link to the master.

    Args:
        host: where the master is; ConfigError if nothing there answers as one within `wait_s`.
        port: its port.
        wait_s: how long to wait.
        receive: called with what the master sends, in a greenlet that must not be held up.
    """

    def __init__(
        self, host: str, port: int, *, wait_s: float, receive: Callable[[bytes], None]
    ) -> None:
        self._address = (host, port)
        self._wait_s = wait_s
        super().__init__()
        self._heard_s = monotonic()
        self._runner.register_message(_KIND, lambda msg, **_: receive(msg.data))
        self._environment.events.heartbeat_received.add_listener(self._hear)

    def send(self, data: bytes) -> None:
        """Send to the master; never blocks."""
        self._runner.send_message(_KIND, data)

    @property
    def silent_s(self) -> float:
        """For how long the master has not been heard; it answers once a second."""
        return monotonic() - self._heard_s

    def close(self) -> None:
        """Hand over what is still to be sent, at most two seconds of it, and leave."""
        socket = self._runner.client.socket
        socket.close(linger=2000)
        socket.context.term()

    def _hear(self, **_: Any) -> None:
        self._heard_s = monotonic()

    def _make_runner(self) -> Any:
        host, port = self._address
        with gevent.Timeout(self._wait_s, _no_master(host, port, self._wait_s)):
            return self._environment.create_worker_runner(host, port)


class MasterLink:
    """The master's link to its workers, each known by a name that Locust gives it.

    Args:
        host: the address to listen on.
        port: the port; 0: any free one, which `port` then tells. ConfigError if it is taken.
        receive: called with a worker's name and what it sends, in a greenlet that must not be
            held up.
    """

    def __init__(self, host: str, port: int, receive: Callable[[str, bytes], None]) -> None:
        environment = Environment(user_classes=[])
        try:
            self._runner: Any = environment.create_master_runner(host, port)
        except (SystemExit, RPCError) as error:
            raise ConfigError(
                f"load.master_bind={host}:{port}: cannot be listened on (taken, or no address of "
                "this machine); give another HOST:PORT"
            ) from error
        self._runner.register_message(_KIND, lambda msg, **_: receive(msg.node_id, msg.data))
        self.port: int = self._runner.server.port

    def send(self, name: str, data: bytes) -> None:
        """Send to one worker."""
        self._runner.send_message(_KIND, data, client_id=name)

    def is_missing(self, name: str) -> bool:
        """Whether a worker has not been heard for some four seconds (it says so every second)."""
        return name not in self._runner.clients or self._runner.clients[name].state == STATE_MISSING


def _no_master(host: str, port: int, wait_s: float) -> ConfigError:
    return ConfigError(
        f"--master {host}:{port}: no bakeoff master answers there within {wait_s:g} s; start the "
        "run with load.remote_workers first, or wait longer with --wait-s"
    )


def _user_class(users: Users) -> type[User]:
    class PlanUser(User):  # type: ignore[misc]
        """Plays its share of the stage, then leaves."""

        @task  # type: ignore[untyped-decorator]
        def play(self) -> None:
            users.play_next()
            raise StopUser

    return PlanUser
