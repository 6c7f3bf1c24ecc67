"""A worker's talk with its master: what comes waits its turn, unless it is urgent."""

from collections.abc import Callable
from typing import Any, TypeVar

import gevent
from gevent.queue import Queue

from harness.errors import BakeoffError, ConfigError, InvalidRunError
from harness.load.distributed import messages as m
from harness.load.play.locust_users import Users, WorkerUsers

_MASTER_GONE_S = 10.0  # a living master is heard every second
_Expected = TypeVar("_Expected", bound=m.Message)


class MasterContact:
    """The link to a master; also what its Locust users are started by.

    Args:
        host: where the master is; ConfigError if none answers there within `wait_s`.
        port: its port.
        wait_s: how long it may take.
        on_urgent: told at once of Stop, Abort, and of an error that ends the worker.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        wait_s: float,
        on_urgent: Callable[[m.Stop | m.Abort | BakeoffError], None],
    ) -> None:
        self.address = f"{host}:{port}"
        self._on_urgent = on_urgent
        self._inbox: Any = Queue()
        self._link = WorkerUsers(host, port, wait_s=wait_s, receive=self._receive)
        gevent.spawn(self._watch)

    @property
    def users(self) -> Users:
        """Locust's users of this worker."""
        return self._link

    def say(self, message: m.Message) -> None:
        """Send to the master."""
        self._link.send(m.encoded(message))

    def next(self) -> m.Message:
        """Wait for what the master says next; BakeoffError if the worker is to end instead."""
        message: m.Message | BakeoffError = self._inbox.get()
        if isinstance(message, BakeoffError):
            raise message
        if isinstance(message, m.Refused):
            raise ConfigError(message.reason)
        return message

    def expect(self, kind: type[_Expected]) -> _Expected:
        """Wait for this kind of message; ConfigError if the master says something else."""
        message = self.next()
        if not isinstance(message, kind):
            raise ConfigError(
                f"{self.address}: said {type(message).__name__} where {kind.__name__} was "
                "expected; is it a bakeoff master of this version?"
            )
        return message

    def break_off(self, error: BakeoffError) -> None:
        """Have `next` raise this, and what runs until then end soon."""
        self._inbox.put(error)
        self._on_urgent(error)

    def close(self) -> None:
        """Hand over what is still to be sent, and leave."""
        self._link.close()

    def _receive(self, data: bytes) -> None:
        message = m.decoded(data)
        if isinstance(message, m.Stop | m.Abort):
            self._on_urgent(message)
        else:
            self._inbox.put(message)

    def _watch(self) -> None:
        while self._link.silent_s < _MASTER_GONE_S:
            gevent.sleep(1.0)
        self.break_off(
            InvalidRunError(
                f"{self.address}: the master is gone, not heard for {_MASTER_GONE_S:g} s; what "
                "this worker had not handed over is lost"
            )
        )
