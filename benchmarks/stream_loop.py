"""The loop of the reference server: one thread, one epoll; requests in, scheduled events out."""

import select
import socket
import time

from stream_connection import SO_TIMESTAMPNS, Connection
from stream_log import StreamLog
from stream_schedule import Schedule, Stream
from stream_wire import (
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

_IDLE_S = 0.1  # how soon a stop is seen when nothing happens
_SPIN_S = 20e-6  # nearer than this to a due event the loop polls without sleeping; must be short:
# a real-time process that never sleeps is stopped for 50 ms a second (Linux's fair server)
_READS_A_TURN = 4  # then due events are sent, even if many requests wait


class StreamServer:
    """Answers on `listener` until `stop`; every event of a stream goes into `log`."""

    def __init__(
        self, listener: socket.socket, log: StreamLog, *, ttft_s: float, tokens_per_s: float
    ) -> None:
        self._listener = listener
        self._log = log
        self._ttft_s = ttft_s
        self._schedule = Schedule(log, tokens_per_s=tokens_per_s, on_complete=self._free)
        self._wires = {COMPLETIONS_PATH: Wire(is_chat=False), CHAT_PATH: Wire(is_chat=True)}
        self._connections: dict[int, Connection] = {}
        self._is_stopping = False
        # Set on the listener, inherited by each connection: the kernel stamps from the start.
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        listener.settimeout(0.0)
        self._epoll = select.epoll()
        self._epoll.register(listener.fileno(), select.EPOLLIN)

    def stop(self) -> None:
        """Let `run` return within a tenth of a second; safe in a signal handler."""
        self._is_stopping = True

    def run(self) -> None:
        """Serve until `stop`, then close every connection."""
        while not self._is_stopping:
            wait_s = min(self._schedule.send_due() - time.monotonic(), _IDLE_S)
            if wait_s > _SPIN_S:  # select sleeps to the microsecond, epoll's own wait does not
                select.select([self._epoll], [], [], wait_s - _SPIN_S)
            for fd, mask in self._epoll.poll(0.0, _READS_A_TURN):
                if fd == self._listener.fileno():
                    self._accept()
                else:
                    self._on_ready(self._connections[fd], mask)
        for connection in self._connections.values():
            connection.close()
        self._epoll.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # the client has gone again, or no descriptor is left: it may retry
            return
        # A closed connection leaves its entry; the kernel hands its number out again.
        self._connections[sock.fileno()] = Connection(sock, self._epoll)

    def _on_ready(self, connection: Connection, mask: int) -> None:
        if mask & select.EPOLLOUT:
            connection.flush()
        if mask & ~select.EPOLLOUT and connection.read() and not connection.is_busy:
            self._answer(connection)

    def _free(self, connection: Connection) -> None:
        connection.is_busy = False
        connection.close_if_done()
        self._answer(connection)

    def _answer(self, connection: Connection) -> None:
        """Answer the requests in the buffer, up to one that begins a stream."""
        while connection.buffer and not connection.is_busy and not connection.is_closing:
            try:
                request = take_request(connection.buffer)
                if request is None:
                    return
                connection.is_closing = request.headers.get("connection", "").lower() == "close"
                self._answer_one(connection, request)
            except BadRequestError as error:
                connection.is_closing = True
                message = {"message": str(error), "type": "invalid_request_error"}
                connection.put(response(400, {"error": message}))
            connection.close_if_done()

    def _answer_one(self, connection: Connection, request: HttpRequest) -> None:
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
        row = self._log.add_request(
            index=request.index,
            arrival_s=connection.stamp_s,
            is_kernel=connection.is_kernel,
            tokens=order.tokens,
        )
        connection.is_busy = True
        connection.blocked = 0
        stream = Stream(
            connection=connection,
            row=row,
            chunks=wire.tokens,
            last_k=order.tokens - 1,
            last=wire.last_token(order.tokens - 1),
            tail=wire.tail(order),
            first_s=connection.stamp_s + self._ttft_s,
        )
        self._schedule.add(stream)
