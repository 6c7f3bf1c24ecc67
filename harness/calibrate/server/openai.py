"""What the reference server answers to HTTP: streams in the form of OpenAI's API, and their models.

A front takes the bytes that a connection has read and begins streams on the schedule; another
protocol is another front.
"""

from functools import partial

from harness.calibrate.server.connection import Connection
from harness.calibrate.server.schedule import Answer, Schedule
from harness.calibrate.server.wire import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    MODEL,
    BadRequestError,
    HttpRequest,
    Wire,
    read_order,
    response,
    take_request,
)


class OpenAiFront:
    """Requests of a connection, one after another; streams go on the schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._wires = {COMPLETIONS_PATH: Wire(is_chat=False), CHAT_PATH: Wire(is_chat=True)}

    def on_read(self, connection: Connection) -> None:
        """Answer the requests in the buffer, up to one that begins a stream."""
        while connection.buffer and not connection.is_busy and not connection.is_closing:
            try:
                request = take_request(connection.buffer)
                if request is None:
                    return
                connection.is_closing = request.headers.get("connection", "").lower() == "close"
                self._answer(connection, request)
            except BadRequestError as error:
                connection.is_closing = True
                message = {"message": str(error), "type": "invalid_request_error"}
                connection.put(response(400, {"error": message}))
            connection.close_if_done()

    def _on_complete(self, connection: Connection) -> None:
        connection.is_busy = False
        connection.close_if_done()
        self.on_read(connection)

    def _answer(self, connection: Connection, request: HttpRequest) -> None:
        wire = self._wires.get(request.path) if request.method == "POST" else None
        if wire is not None:
            self._begin_stream(connection, request, wire)
        elif request.path == "/health":
            connection.put(response(200, {"status": "ok"}))
        elif request.path == "/v1/models":
            models = [{"id": MODEL, "object": "model", "created": 0, "owned_by": "bakeoff"}]
            connection.put(response(200, {"object": "list", "data": models}))
        else:
            message = f"{request.method} {request.path}: no such route"
            connection.put(response(404, {"error": {"message": message, "type": "not_found"}}))

    def _begin_stream(self, connection: Connection, request: HttpRequest, wire: Wire) -> None:
        order = read_order(request)
        wire.reserve(order.tokens)
        last_k = order.tokens - 1
        answer = Answer(
            index=request.index,
            chunks=wire.tokens,
            last_k=last_k,
            last=wire.last_token(last_k),
            tail=wire.tail(order),
            on_complete=partial(self._on_complete, connection),
        )
        self._schedule.begin(connection, answer)
