"""The reference server's gRPC side: DeepSpeed-MII's stream on the same schedule and log.

The client's windows are kept; what does not fit waits and is counted as blocked.
"""

from adapters.mii_wire import STREAM_PATH, read_request
from adapters.protobuf import BadMessageError
from harness.calibrate.server.connection import Connection
from harness.calibrate.server.grpc_answer import TokenFrames, refusal, tail
from harness.calibrate.server.grpc_session import GrpcSession
from harness.calibrate.server.grpc_stream import GrpcStream
from harness.calibrate.server.schedule import Answer, Schedule

_INVALID_ARGUMENT, _UNIMPLEMENTED = 3, 12  # gRPC's status codes


class GrpcFront:
    """Connections that speak gRPC; their streams go on the schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._sessions: dict[Connection, GrpcSession] = {}

    def on_read(self, connection: Connection) -> None:
        """Hand what has come to the connection's session."""
        session = self._sessions.get(connection)
        if session is None:
            session = self._sessions[connection] = GrpcSession(connection, self._answer)
        session.on_read()

    def _answer(self, stream: GrpcStream) -> None:
        if stream.path != STREAM_PATH:
            _refuse(stream, _UNIMPLEMENTED, f"{stream.path}: no such method")
            return
        try:
            ask = read_request(stream.message)
        except BadMessageError as error:
            _refuse(stream, _INVALID_ARGUMENT, str(error))
            return
        tokens = TokenFrames(stream.number, ask)
        answer = Answer(
            index=stream.index,
            chunks=tokens,
            last_k=ask.tokens - 1,
            last=tokens[ask.tokens - 1],
            tail=tail(stream.number, ask),
            on_complete=stream.end,
        )
        self._schedule.begin(stream, answer)


def _refuse(stream: GrpcStream, status: int, message: str) -> None:
    stream.put(refusal(stream.number, status, message))
    stream.end()
