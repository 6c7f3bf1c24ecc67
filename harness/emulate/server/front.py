"""Requests of a connection, one after another: refused, answered, or given to the engine."""

from functools import partial

from harness.calibrate.server.wire import BadRequestError, take_request
from harness.emulate.server.gate import Gate
from harness.emulate.server.stream import ClientConnection
from harness.emulate.wires.http import json_response
from harness.emulate.wires.wire import Ask, Wire


class _Refusals:
    """How a request is refused: as its wire does, or as only such requests are."""

    def __init__(self, wire: Wire, ask: Ask) -> None:
        self._wire = wire
        self._ask = ask

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """See `harness.emulate.server.gate.Refusals`."""
        own = self._ask.overloaded
        return own() if own else self._wire.overloaded(in_flight, retry_after_s)

    def failed(self) -> bytes:
        """See `harness.emulate.server.gate.Refusals`."""
        return (self._ask.failed or self._wire.failed)()


class Front:
    """Speaks the engine's wire over HTTP/1.1."""

    def __init__(self, wire: Wire, gate: Gate) -> None:
        self._wire = wire
        self._gate = gate
        self._number = 0

    def on_read(self, connection: ClientConnection) -> None:
        """Answer the requests in the buffer, up to one that the engine works on."""
        while connection.buffer and not connection.is_busy and not connection.is_closing:
            try:
                request = take_request(connection.buffer)
            except BadRequestError as error:
                connection.is_closing = True
                connection.put(json_response(400, {"error": {"message": str(error)}}))
                connection.close_if_done()
                return
            if request is None:
                return
            connection.requests += 1
            is_last = connection.requests == self._wire.manners.requests_a_connection
            asks_to_close = request.headers.get("connection", "").lower() == "close"
            connection.is_closing = is_last or asks_to_close
            if is_last:
                request.headers["connection"] = "close"
            if self._gate.is_loading:
                _say(connection, self._wire.loading())
            else:
                self._number += 1
                answer = self._wire.respond(request, self._number, self._gate.state)
                said = self._admitted(connection, answer) if isinstance(answer, Ask) else answer
                if said is not None:
                    _say(connection, said)
            connection.close_if_done()

    def _admitted(self, connection: ClientConnection, ask: Ask) -> bytes | None:
        """None if the engine works on it, else its refusal."""
        done = partial(self._on_complete, connection)
        return self._gate.admit(connection, ask, _Refusals(self._wire, ask), on_complete=done)

    def _on_complete(self, connection: ClientConnection) -> None:
        connection.close_if_done()
        self.on_read(connection)


def _say(connection: ClientConnection, answer: bytes) -> None:
    """Put a whole answer, and close behind it if it says so."""
    head = answer[: answer.find(b"\r\n\r\n") + 2].lower()
    connection.is_closing = connection.is_closing or b"\r\nconnection: close\r\n" in head
    connection.put(answer)
