"""Which protocol a client speaks on the one port: its first bytes say so."""

from collections.abc import Callable

from harness.emulate.server.front import Front
from harness.emulate.server.gate import Gate
from harness.emulate.server.grpc_front import GrpcFront
from harness.emulate.server.stream import ClientConnection
from harness.emulate.wires.wire import GrpcWire, Wire

_HTTP_2 = b"PRI"  # how its preface begins, and no method of HTTP/1.1 (RFC 9113, 3.4)


def reader(wire: Wire, gate: Gate) -> Callable[[ClientConnection], None]:
    """What takes in what a connection has read: HTTP/1.1, and gRPC where the wire has it."""
    http = Front(wire, gate)
    if not isinstance(wire, GrpcWire):
        return http.on_read
    grpc = GrpcFront(wire, gate)

    def on_read(connection: ClientConnection) -> None:
        if connection.session is not None or connection.buffer.startswith(_HTTP_2):
            grpc.on_read(connection)
        elif not _HTTP_2.startswith(connection.buffer):  # enough has come to tell
            http.on_read(connection)

    return on_read
