"""A loopback gRPC server that answers by script, hostile ones included: truth for a load client."""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic

import hpack

from harness.grpc.call import CONTENT_TYPE, header_block, pack_message
from harness.grpc.frames import (
    END_HEADERS,
    END_STREAM,
    PREFACE,
    FrameCutter,
    FrameType,
    content,
    frame,
    settings,
)
from harness.testing.scripted import Script, ScriptedServer, Seen, Step

_READ_BYTES = 65536

GrpcScript = Callable[[int], Script]
"""The steps of an answer on the stream with this number."""


def grpc_head(stream: int, *, flags: int = END_HEADERS, **more: str) -> bytes:
    """HEADERS that begin an answer; `more`: further fields, `_` for `-`."""
    fields = {name.replace("_", "-"): value for name, value in more.items()}
    block = header_block({":status": "200", "content-type": CONTENT_TYPE, **fields})
    return frame(FrameType.HEADERS, flags, stream, block)


def grpc_data(stream: int, *messages: bytes) -> bytes:
    """DATA with these messages in one frame."""
    return frame(FrameType.DATA, 0, stream, b"".join(map(pack_message, messages)))


def grpc_trailers(stream: int, status: int = 0, message: str = "") -> bytes:
    """HEADERS that end an answer."""
    fields = {"grpc-status": str(status)} | ({"grpc-message": message} if message else {})
    return frame(FrameType.HEADERS, END_HEADERS | END_STREAM, stream, header_block(fields))


def good_script(*messages: bytes) -> GrpcScript:
    """A whole answer in one piece."""
    return lambda stream: (
        grpc_head(stream) + grpc_data(stream, *messages) + grpc_trailers(stream),
    )


class ScriptedGrpcServer(ScriptedServer):
    """Plays `scripts[path]` for each call; a path without a script is answered UNIMPLEMENTED.

    `greeting`: what a connection begins with. `heard`: every frame that came but PREFACE, with
    the number of its connection: (connection, kind, flags, stream, payload).
    """

    def __init__(
        self, scripts: Mapping[str, GrpcScript], *, greeting: Sequence[bytes] = (settings(),)
    ) -> None:
        self._grpc_scripts = scripts
        self._greeting = greeting
        self.heard: list[tuple[int, int, int, int, bytes]] = []
        self.messages: dict[tuple[int, int], bytes] = {}
        super().__init__({})

    def _serve(self, sock: socket.socket, number: int) -> None:
        with sock, suppress(OSError):
            for data in self._greeting:
                sock.sendall(data)
            rest = b""
            while len(rest) < len(PREFACE):
                if not (data := sock.recv(_READ_BYTES)):
                    return
                rest += data
            self._talk(sock, number, rest.removeprefix(PREFACE))

    def _talk(self, sock: socket.socket, number: int, data: bytes) -> None:
        frames, headers, path = FrameCutter(), hpack.Decoder(), ""
        while True:
            for item in frames.feed(data):
                self.heard.append((number, *item))
                if item.kind == FrameType.HEADERS:
                    path = next(
                        str(value)
                        for name, value in headers.decode(item.payload)
                        if str(name) == ":path"
                    )
                    self.seen.append(Seen(monotonic(), number, path))
                    if Step.DEAF in self._script(path, item.stream):
                        self._is_over.wait()
                        return
                elif item.kind == FrameType.DATA:
                    key = number, item.stream
                    self.messages[key] = self.messages.get(key, b"") + content(item)
                    ended = item.flags & END_STREAM
                    script = self._script(path, item.stream)
                    if ended and not self._play(sock, script):
                        if Step.CLOSE in script:
                            _end_of_file(sock)
                        return
            if not (data := sock.recv(_READ_BYTES)):
                return

    def _script(self, path: str, stream: int) -> Script:
        script = self._grpc_scripts.get(path)
        if script is not None:
            return script(stream)
        return (grpc_head(stream, flags=END_HEADERS | END_STREAM, grpc_status="12"),)


def _end_of_file(sock: socket.socket) -> None:
    """Say that nothing more comes, and read on: a close with bytes unread would be a reset."""
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(_READ_BYTES):
        continue
