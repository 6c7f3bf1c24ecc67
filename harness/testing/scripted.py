"""A loopback HTTP server that answers by script, hostile ones included: truth for a load client."""

import socket
import ssl
import struct
import threading
from collections.abc import Mapping, Sequence
from enum import Enum
from time import monotonic
from types import TracebackType
from typing import NamedTuple, Self

_READ_BYTES = 65536


class Step(Enum):
    """What a script can do beside sending bytes and waiting.

    CLOSE: end of file. RESET: a TCP reset. HANG: say nothing more. DEAF: as HANG, and do not even
    read what the client sends.
    """

    CLOSE = "close"
    RESET = "reset"
    HANG = "hang"
    DEAF = "deaf"


Script = Sequence["bytes | float | Step"]


class InTurn(tuple[Script, ...]):
    """Scripts for the first request of a path, the second, and so on; the last one repeats."""

    __slots__ = ()


_NOT_FOUND: Script = (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",)


class Seen(NamedTuple):
    """One request that the server has read: when its head came, on which connection."""

    t_s: float
    connection: int
    path: str
    head: bytes = b""


class ScriptedServer:
    """Plays `scripts[path]` for each request; bytes are sent as they are, floats are seconds.

    A path without a script is answered with 404. One thread a connection; a connection lives on
    unless its script ends it. `left_s`: when clients have closed connections that hung.

    Args:
        scripts: by path.
        address: where to listen, IPv4 or IPv6.
        tls: the encryption of every connection; None: there is none.
    """

    def __init__(
        self,
        scripts: Mapping[str, Script | InTurn],
        *,
        address: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._scripts = scripts
        self._tls = tls
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=512)
        self.left_s: list[float] = []
        self._is_over = threading.Event()
        self._open: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        self.seen: list[Seen] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def connections(self) -> int:
        """How many connections have been opened so far."""
        return len(self._open)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:  # closed
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as engines do
            self._open.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, len(self._open)), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        rest = b""
        try:
            if self._tls is not None:
                sock = self._open[number - 1] = self._tls.wrap_socket(sock, server_side=True)
            while True:
                while b"\r\n\r\n" not in rest:
                    data = sock.recv(_READ_BYTES)
                    if not data:
                        return
                    rest += data
                head, _, rest = rest.partition(b"\r\n\r\n")
                path = head.split(b" ")[1].decode()
                self.seen.append(Seen(monotonic(), number, path, head))
                script = self._script_of(path)
                if Step.DEAF in script:
                    self._is_over.wait()
                    return
                rest = _without_body(sock, head, rest)
                if not self._play(sock, script):
                    return
        except OSError:  # the client went away
            return
        finally:
            sock.close()

    def _script_of(self, path: str) -> Script:
        script = self._scripts.get(path, _NOT_FOUND)
        if isinstance(script, InTurn):
            times = sum(seen.path == path for seen in self.seen)
            return script[min(times, len(script)) - 1]
        return script

    def _play(self, sock: socket.socket, script: Script) -> bool:
        for step in script:
            if isinstance(step, bytes):
                sock.sendall(step)
            elif isinstance(step, float):
                self._is_over.wait(step)
            elif step is Step.HANG:
                self._hang(sock)
                return False
            else:
                if step is Step.RESET:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
        return True

    def _hang(self, sock: socket.socket) -> None:
        try:
            while sock.recv(_READ_BYTES):
                continue
        finally:
            if not self._is_over.is_set():
                self.left_s.append(monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._open:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(timeout=5.0)


def _without_body(sock: socket.socket, head: bytes, rest: bytes) -> bytes:
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(rest) < length:
        data = sock.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError
        rest += data
    return rest[length:]
