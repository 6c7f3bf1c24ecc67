"""Reading from all connections: one edge-triggered epoll, and all that is ready in one go.

The event loop watches one file, the epoll. What is ready is first read from the kernel, socket
after socket, and then given to its connections: code that runs in a row stays in the processor's
cache. A call through the loop for every read, each with all that follows, cost a third more.
"""

from collections.abc import Callable, Iterable
from select import EPOLLET, EPOLLIN, EPOLLRDHUP
from typing import Any

import gevent.monkey
from gevent.hub import get_hub

from harness.load.wire.stamps import ANCILLARY_BYTES, Clocks, read_clocks

_epoll: Any = gevent.monkey.get_original("select", "epoll")
READ_BYTES = 64 * 1024  # more, and malloc maps and unmaps memory for every read
_AT_ONCE = 512  # then timers and other watchers have their turn
_EVENTS = EPOLLIN | EPOLLRDHUP | EPOLLET

Ancillary = list[tuple[int, int, bytes]]


Take = Callable[[bytes, Ancillary, Clocks], None]
Fail = Callable[[OSError], None]


class Poller:
    """Reads sockets that have something, each until it has nothing more.

    `reads`: how many there have been.
    """

    def __init__(self) -> None:
        self.reads = 0
        self._epoll = _epoll()
        self._clock: Any = None
        self._listeners: dict[int, tuple[Callable[[int, int], Any], Take, Fail]] = {}
        self._watcher: Any = get_hub().loop.io(self._epoll.fileno(), 1)
        self._watcher.start(self.read_now)

    def listen(self, sock: Any, take: Take, fail: Fail) -> None:
        """Read this raw socket from now on, and what has come already.

        `take` gets the bytes of each read, none for the end, with control messages and clocks;
        `fail` gets the error of a read.
        """
        fd = sock.fileno()
        if fd not in self._listeners:
            self._epoll.register(fd, _EVENTS)
        self._listeners[fd] = sock.recvmsg, take, fail

    def drop(self, sock: Any) -> None:
        """Read this socket no more; before it is closed."""
        if self._listeners.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock.fileno())

    def read_every(self, pause_s: float | None) -> None:
        """Read so often, whatever has come by then; None: as soon as something comes."""
        if self._clock is not None:
            self._clock.stop()
            self._clock.close()
            self._clock = None
        if pause_s is None:
            self._watcher.start(self.read_now)
            return
        self._watcher.stop()
        self._clock = get_hub().loop.timer(pause_s, pause_s)
        self._clock.start(self.read_now)

    def close(self) -> None:
        """Read no more at all."""
        self.read_every(None)
        self._listeners.clear()
        self._watcher.stop()
        self._watcher.close()
        self._epoll.close()

    def read_now(self) -> None:
        """Read all that has come by now; for whoever keeps the event loop from it for long."""
        self._read(self._epoll.poll(0, _AT_ONCE))

    def _read(self, ready: Iterable[tuple[int, int]]) -> None:
        listeners, done, again = self._listeners, [], []
        for fd, events in ready:
            listener = listeners.get(fd)
            if listener is None:
                continue
            recv, take, fail = listener
            try:
                data, ancillary, _, _ = recv(READ_BYTES, ANCILLARY_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                fail(error)
                continue
            done.append((take, data, ancillary))
            # an edge is told of once: what is left, the end above all, has to be fetched
            if data and (events != EPOLLIN or len(data) == READ_BYTES):
                again.append((fd, events))
        self.reads += len(done)
        clocks = read_clocks()
        for take, data, ancillary in done:
            take(data, ancillary, clocks)
        if again:
            get_hub().loop.run_callback(self._read, again)
