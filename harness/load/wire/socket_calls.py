"""What a greenlet does with a socket that does not block: connect, shake hands, send.

Each waits in the hub, and is woken when the socket is shut down.
"""

import errno
from collections.abc import Callable
from time import monotonic
from typing import Any

import gevent.socket

from harness.load.wire.tls import TlsStream

_READ_BYTES = 16 * 1024  # a TLS record


def connect(sock: Any, address: tuple[Any, ...]) -> None:
    """Connect; OSError with the number of what went wrong."""
    code = sock.connect_ex(address)
    if code == errno.EINPROGRESS:
        gevent.socket.wait_write(sock.fileno())
        code = sock.getsockopt(gevent.socket.SOL_SOCKET, gevent.socket.SO_ERROR)
    if code:
        raise OSError(code, errno.errorcode.get(code, ""))


def shake_hands(sock: Any, tls: TlsStream, after_step: Callable[[], None]) -> None:
    """The TLS handshake; CertificateError, or OSError for anything else that went wrong.

    `after_step`: called after each computation, which takes up to a millisecond.
    """
    while True:
        is_done = tls.shake_hands()
        after_step()
        send(sock, tls.take_outgoing(), lambda: False)
        if is_done:
            return
        gevent.socket.wait_read(sock.fileno())
        data = sock.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
        tls.take_incoming(data)


def send(sock: Any, data: bytes, is_over: Callable[[], bool]) -> float | None:
    """Send all; when the last of it was handed over (monotonic), None if `is_over` came first."""
    view, sent_s = memoryview(data), 0.0
    while view and not is_over():
        sent_s = monotonic()  # before the call: on loopback the answer may overtake its end
        try:
            view = view[sock.send(view) :]
        except BlockingIOError:
            gevent.socket.wait_write(sock.fileno())
    return None if view else sent_s


def error_name(error: OSError) -> str:
    """The error's name (`ECONNREFUSED`), or its words if it has none."""
    return errno.errorcode.get(error.errno or 0) or str(error.strerror or error)
