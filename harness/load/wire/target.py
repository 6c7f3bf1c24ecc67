"""From the name of a server to connections: resolved once, before the load."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from socket import AF_INET6, SOCK_STREAM
from typing import Any

import gevent.socket

from harness.errors import ConfigError
from harness.load.job import Target
from harness.load.journal import JournalWriter
from harness.load.wire.connection import Connection
from harness.load.wire.grpc_connection import GrpcConnection
from harness.load.wire.poller import Poller
from harness.load.wire.secrets import masker, read_key
from harness.load.wire.tls import TlsSettings, tls_settings
from harness.types import Wire

_TRY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTarget:
    """Where and how to connect. `tls`: None without. `api_key`: what requests carry, or empty."""

    family: int
    address: tuple[Any, ...]
    wire: Wire = Wire.HTTP
    tls: TlsSettings | None = None
    api_key: bytes = field(default=b"", repr=False)

    def connection(self, journal: JournalWriter, poller: Poller) -> Connection | GrpcConnection:
        """A new connection, not yet connected; OSError if no socket is left."""
        if self.wire is Wire.GRPC:
            return GrpcConnection(self.family, journal)
        return Connection(
            self.family,
            journal,
            poller,
            tls=self.tls.stream() if self.tls else None,
            mask=masker(self.api_key),
        )


def resolve(target: Target) -> ResolvedTarget:
    """Resolve once, so that no request waits for a name server.

    Of several addresses it is the first one that takes a connection now, IPv4 before IPv6.

    Raises:
        OSError: the name is not known.
        ConfigError: a key is asked for that is not there, or cannot be sent; gRPC with a key, or
            over TLS, which our gRPC client has not.
    """
    if target.wire is Wire.GRPC and (target.is_tls or target.api_key_env):
        raise ConfigError(
            "launch: a gRPC server is reached without TLS and without a key; give its http:// "
            "address and leave launch.api_key_env out"
        )
    infos = gevent.socket.getaddrinfo(target.host, target.port, type=SOCK_STREAM)
    infos = sorted(infos, key=lambda info: info[0] == AF_INET6)
    family, _, _, _, address = _reachable(infos)
    return ResolvedTarget(
        family=family,
        address=tuple(address),
        wire=target.wire,
        tls=tls_settings(target.host, verify=target.tls_verify) if target.is_tls else None,
        api_key=read_key(target.api_key_env).encode(),
    )


def _reachable(infos: Sequence[Any]) -> Any:
    """The first address with a listener: `localhost` is two, and many servers take one of them."""
    for info in infos if len(infos) > 1 else ():
        with suppress(OSError), gevent.socket.socket(*info[:3]) as sock:
            sock.settimeout(_TRY_S)
            sock.connect(info[4])
            return info
    return infos[0]
