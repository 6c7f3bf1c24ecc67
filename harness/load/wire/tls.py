"""TLS between memory buffers: the socket stays raw, so that the kernel still stamps what arrives.

A read of a TLS socket of Python's own has no stamp. Here ciphertext comes from `recvmsg` and is
decrypted afterwards; what comes out has the stamp of the read that completed it. Sans-IO.
"""

import ssl
from contextlib import suppress
from dataclasses import dataclass

_RECORD_BYTES = 16 * 1024  # the most that one TLS record holds (RFC 8446, 5.1)


class CertificateError(Exception):
    """The server's certificate is not accepted; one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What every connection to one server shares."""

    context: ssl.SSLContext
    host: str

    def stream(self) -> "TlsStream":
        """The encryption of a new connection."""
        return TlsStream(self.context, self.host)


def tls_settings(host: str, *, verify: bool) -> TlsSettings:
    """Settings for a server of this name or address; `verify=False` takes any certificate.

    Certificates are checked against those that the system trusts, SSL_CERT_FILE and SSL_CERT_DIR
    included, and against the name.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return TlsSettings(context=context, host=host)


class TlsStream:
    """The encryption of one connection.

    `is_ended`: the server has said that it sends no more (close_notify).
    """

    __slots__ = ("_incoming", "_object", "_outgoing", "is_ended")

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.is_ended = False

    def shake_hands(self) -> bool:
        """Go on with the handshake; True when it is done. What is to be sent is outgoing.

        Raises:
            CertificateError: the server's certificate is not accepted.
            ssl.SSLError: the server does not speak TLS as we do (an OSError).
        """
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(
                f"certificate not accepted: {error.verify_message.rstrip('.')} "
                "(launch.tls_verify=false takes any)"
            ) from error
        return True

    def take_incoming(self, data: bytes) -> None:
        """Ciphertext that came during the handshake."""
        self._incoming.write(data)

    def take_outgoing(self) -> bytes:
        """Ciphertext that is to be sent now."""
        return self._outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        """Plain bytes to ciphertext."""
        view = memoryview(data)
        while view:
            view = view[self._object.write(view) :]
        return self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """Ciphertext to what it completes of the plain bytes; may be nothing yet.

        ssl.SSLError (an OSError) for what cannot be decrypted.
        """
        incoming, pieces = self._incoming, []
        incoming.write(data)
        try:
            while incoming.pending:
                piece = self._object.read(_RECORD_BYTES)
                if not piece:
                    self.is_ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:  # the rest of a record is still to come
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def farewell(self) -> bytes:
        """What tells the server that we send no more."""
        with suppress(ssl.SSLError):  # it wants the server's own first; we do not wait for it
            self._object.unwrap()
        return self._outgoing.read()
