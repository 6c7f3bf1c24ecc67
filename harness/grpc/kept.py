"""A gRPC answer that somebody waits for: its bytes as read, without HTTP/2 and gRPC's frames."""

from typing import cast

from harness.adapter import Adapter
from harness.grpc.decode import GrpcBody
from harness.types import Chunk, ResponseHead


class _Collector:
    """Stands in for an adapter and its decoder: keeps the messages as they are."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def decoder(self, _head: ResponseHead) -> "_Collector":
        return self

    def feed(self, data: bytes) -> list[Chunk]:
        self.messages.append(data)
        return []

    def end(self) -> list[Chunk]:
        return []


def read_grpc_answer(data: bytes) -> tuple[ResponseHead | None, tuple[bytes, ...]]:
    """Head and whole messages of one answer, for a decoder that is fed one after another.

    No head if none came, or if the answer ended with a status that is not OK.
    """
    collector = _Collector()
    body = GrpcBody(cast("Adapter", collector), None)  # of an adapter only `decoder` is called
    body.feed(0.0, data)
    is_failed = body.answer is None or body.answer.error is not None
    return None if is_failed else body.head, tuple(collector.messages)
