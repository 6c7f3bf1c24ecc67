"""Requests of a connection, one after another: refused, answered, or given to the engine."""

import math
from random import Random

from harness.calibrate.server.wire import BadRequestError, take_request
from harness.config import EmulateConf
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.server.stream import ClientConnection
from harness.emulate.wires.http import json_response
from harness.emulate.wires.wire import Ask, Wire


class Front:
    """Speaks the engine's wire, and shows the faults that a request can meet."""

    def __init__(self, conf: EmulateConf, wire: Wire, player: Player, pace: Pace) -> None:
        self._conf = conf
        self._wire = wire
        self._player = player
        self._pace = pace
        self._number = 0
        self._random = Random(f"faults {conf.seed}")
        player.on_complete = self._on_complete

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
            if is_last:
                request.headers["connection"] = "close"
            if self._pace.now_s() < self._conf.loading_s:
                _say(connection, self._wire.loading())
            else:
                self._number += 1
                answer = self._wire.respond(request, self._number, self._player)
                self._put(connection, answer)
            connection.close_if_done()

    def _on_complete(self, connection: ClientConnection) -> None:
        connection.close_if_done()
        self.on_read(connection)

    def _put(self, connection: ClientConnection, answer: bytes | Ask) -> None:
        if isinstance(answer, bytes):
            _say(connection, answer)
            return
        conf, in_flight = self._conf, self._player.in_flight
        if conf.max_in_flight is not None and in_flight >= conf.max_in_flight:
            wait_s = math.ceil(conf.retry_after_s / conf.speed)
            said = answer.overloaded
            _say(connection, said() if said else self._wire.overloaded(in_flight, wait_s))
            return
        chance = self._random.random()  # one draw a request: the seed fixes which ones fail
        if chance < conf.error_ratio:
            _say(connection, (answer.failed or self._wire.failed)())
            return
        is_cut = chance >= 1.0 - conf.cut_ratio
        is_failed = not is_cut and chance < conf.error_ratio + conf.stream_error_ratio
        cut_at = answer.output_tokens // 2 if is_cut or is_failed else None
        failure = answer.failure if is_failed else None
        self._player.take(connection, answer, cut_at=cut_at, failure=failure)


def _say(connection: ClientConnection, answer: bytes) -> None:
    """Put a whole answer, and close behind it if it says so."""
    head = answer[: answer.find(b"\r\n\r\n") + 2].lower()
    connection.is_closing = connection.is_closing or b"\r\nconnection: close\r\n" in head
    connection.put(answer)
