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

from harness.load.stamps import ANCILLARY_BYTES, Clocks, read_clocks

_epoll: Any = gevent.monkey.get_original("select", "epoll")
READ_BYTES = 64 * 1024  # more, and malloc maps and unmaps memory for every read
_AT_ONCE = 512  # then timers and other watchers have their turn
_EVENTS = EPOLLIN | EPOLLRDHUP | EPOLLET

Ancillary = list[tuple[int, int, bytes]]


Take = Callable[[bytes, Ancillary, Clocks], None]
Fail = Callable[[OSError], None]


class Poller:
    """Reads sockets that have something, each until it has nothing more."""

    def __init__(self) -> None:
        self._epoll = _epoll()
        self._listeners: dict[int, tuple[Callable[[int, int], Any], Take, Fail]] = {}
        self._watcher: Any = get_hub().loop.io(self._epoll.fileno(), 1)
        self._watcher.start(self._dispatch)

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

    def close(self) -> None:
        """Read no more at all."""
        self._listeners.clear()
        self._watcher.stop()
        self._watcher.close()
        self._epoll.close()

    def _dispatch(self) -> None:
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
        clocks = read_clocks()
        for take, data, ancillary in done:
            take(data, ancillary, clocks)
        if again:
            get_hub().loop.run_callback(self._read, again)
