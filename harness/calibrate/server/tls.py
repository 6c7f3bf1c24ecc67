"""A connection of the reference server with TLS over it.

The cipher works on memory, not on the socket: the bytes are still read by `recvmsg`, so that a
request is stamped by the kernel when its last ciphertext came, as without TLS.
"""

import select
import socket
import ssl
from pathlib import Path

from harness.calibrate.server.connection import Connection

CERTIFICATE = Path(__file__).with_name("localhost_test_only.pem")


def server_context() -> ssl.SSLContext:
    """TLS 1.2 or newer with the certificate that ships for localhost, trusted by nobody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


class TlsConnection(Connection):
    """A connection whose bytes are encrypted on the way; plain on both of its inner sides."""

    __slots__ = ("_incoming", "_is_open", "_outgoing", "_tls")

    def __init__(self, sock: socket.socket, epoll: select.epoll, context: ssl.SSLContext) -> None:
        super().__init__(sock, epoll)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False

    def put(self, data: bytes) -> bool:
        """Encrypt, then send or queue; False if the client is gone."""
        try:
            self._tls.write(data)
        except ssl.SSLError:  # the session has broken down
            self.close()
            return False
        return super().put(self._outgoing.read())

    def _plain(self, data: bytes) -> bytes:
        self._incoming.write(data)
        plain = b""
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            while piece := self._tls.read(65536):
                plain += piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # not TLS, a refused certificate, or the client's farewell
            self.is_closing = True
        if self._outgoing.pending:  # of the handshake, or an alert
            super().put(self._outgoing.read())
        self.close_if_done()
        return plain
