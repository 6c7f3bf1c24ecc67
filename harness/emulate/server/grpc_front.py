"""Calls of a gRPC connection: refused, or given to the engine as streams beside each other."""

from harness.calibrate.server.grpc_answer import refusal
from harness.calibrate.server.grpc_session import GrpcSession
from harness.calibrate.server.grpc_stream import GrpcStream
from harness.emulate.server.gate import Gate
from harness.emulate.server.stream import ClientConnection, Leaver, Stream
from harness.emulate.wires.wire import GrpcRefusal, GrpcWire
from harness.grpc.frames import ErrorCode, FrameType, frame


class GrpcSink:
    """One call's way back. A client that goes is not heard: the engine works on for nobody."""

    def __init__(self, stream: GrpcStream, leaver: Leaver) -> None:
        self._stream = stream
        self._leaver = leaver
        self.stamp_s = stream.stamp_s
        self.is_busy = False
        self.stream: Stream | None = None

    def put(self, data: bytes) -> bool:
        """Send now, or when the client's windows allow it; False if the client is gone."""
        return self._stream.put(data)

    def close(self) -> None:
        """Break this stream off; the others of its connection go on."""
        code = ErrorCode.INTERNAL_ERROR.to_bytes(4, "big")
        self._stream.put(frame(FrameType.RST_STREAM, 0, self._stream.number, code))
        self._stream.end()
        self._stream.is_gone = True
        stream, self.stream = self.stream, None
        if stream is not None:
            self._leaver.abandon(stream)

    def end(self) -> None:
        """The last bytes have been put."""
        self._stream.end()


class _Refusals:
    """How this call is refused."""

    def __init__(self, wire: GrpcWire, stream: int) -> None:
        self._wire = wire
        self._stream = stream

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """See `harness.emulate.server.gate.Refusals`."""
        del in_flight, retry_after_s
        return self._bytes(self._wire.grpc_overloaded())

    def failed(self) -> bytes:
        """See `harness.emulate.server.gate.Refusals`."""
        return self._bytes(self._wire.grpc_failed())

    def _bytes(self, said: GrpcRefusal) -> bytes:
        return refusal(self._stream, said.status, said.message)


class GrpcFront:
    """Speaks the engine's wire over gRPC."""

    def __init__(self, wire: GrpcWire, gate: Gate) -> None:
        self._wire = wire
        self._gate = gate
        self._number = 0

    def on_read(self, connection: ClientConnection) -> None:
        """Hand what has come to the connection's session."""
        session = connection.session
        if session is None:
            session = connection.session = GrpcSession(connection, self._answer)
        session.on_read()

    def _answer(self, stream: GrpcStream) -> None:
        self._number += 1
        sink = GrpcSink(stream, self._gate.leaver)
        asked = self._wire.call(stream.path, stream.message, stream.number, self._number)
        if isinstance(asked, GrpcRefusal):
            sink.put(refusal(stream.number, asked.status, asked.message))
            sink.end()
            return
        refusals = _Refusals(self._wire, stream.number)
        refused = self._gate.admit(sink, asked, refusals, on_complete=sink.end)
        if refused is not None:
            sink.put(refused)
            sink.end()
