"""Requests of a connection, one after another: refused, answered, or given to the engine."""

from functools import partial

from harness.calibrate.server.wire import BadRequestError, take_request
from harness.emulate.server.gate import Gate
from harness.emulate.server.stream import ClientConnection
from harness.emulate.wires.http import json_response
from harness.emulate.wires.wire import Wire


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
            is_last = connection.requests == self._wire.requests_a_connection
            asks_to_close = request.headers.get("connection", "").lower() == "close"
            connection.is_closing = is_last or asks_to_close
            if self._gate.is_loading:
                connection.put(self._wire.loading())
            else:
                self._number += 1
                answer = self._wire.respond(request, self._number, self._gate.state)
                if isinstance(answer, bytes):
                    connection.put(answer)
                else:
                    done = partial(self._on_complete, connection)
                    self._gate.admit(connection, answer, self._wire, on_complete=done)
            connection.close_if_done()

    def _on_complete(self, connection: ClientConnection) -> None:
        connection.close_if_done()
        self.on_read(connection)
