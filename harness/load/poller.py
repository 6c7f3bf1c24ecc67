"""Which sockets have something to read: one edge-triggered epoll for all connections.

The event loop's own watchers cost a call through its machinery for every read, and being
level-triggered they make the kernel look at every socket twice. Here the loop watches one file,
the epoll, and what is ready is called in a row.
"""

from collections.abc import Callable
from select import EPOLLET, EPOLLIN, EPOLLRDHUP
from typing import Any

import gevent.monkey
from gevent.hub import get_hub

_epoll: Any = gevent.monkey.get_original("select", "epoll")
_AT_ONCE = 512  # then timers and other watchers have their turn
_EVENTS = EPOLLIN | EPOLLRDHUP | EPOLLET


class Poller:
    """Calls back for files with something to read; a file is told of once for all it holds.

    So a callback has to read all there is: less than it asked for, or until it would block. At
    the end of a file it is called once more than for bytes.
    """

    def __init__(self) -> None:
        self._epoll = _epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._watcher: Any = get_hub().loop.io(self._epoll.fileno(), 1)
        self._watcher.start(self._dispatch)

    def set(self, fd: int, callback: Callable[[], None]) -> None:
        """Call this from now on for this file, also for what it holds already."""
        if fd not in self._callbacks:
            self._epoll.register(fd, _EVENTS)
        self._callbacks[fd] = callback

    def call_again(self, fd: int) -> None:
        """Call back once more soon: it has not read all there is."""
        get_hub().loop.run_callback(self._call, fd)

    def drop(self, fd: int) -> None:
        """Call no more for this file; before it is closed."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Call no more at all."""
        self._callbacks.clear()
        self._watcher.stop()
        self._watcher.close()
        self._epoll.close()

    def _call(self, fd: int) -> None:
        callback = self._callbacks.get(fd)
        if callback is not None:
            callback()

    def _dispatch(self) -> None:
        callbacks = self._callbacks
        for fd, events in self._epoll.poll(0, _AT_ONCE):
            callback = callbacks.get(fd)
            if callback is not None:
                callback()
                if events != EPOLLIN and (callback := callbacks.get(fd)) is not None:
                    callback()  # the end, behind the bytes
